"""What a browser keeps of runs."""

from __future__ import annotations


def stored(asked: str) -> str:
    """JavaScript that waits for what the page's store of runs answers."""
    return f"""new Promise((done) => {{
      indexedDB.open("length-lab").onsuccess = ({{ target }}) => {{
        const asked = target.result.transaction("runs").objectStore("runs").{asked};
        asked.onsuccess = () => {{ target.result.close(); done(asked.result); }};
      }};
    }})"""


LAST = stored("get('last')")
