"""Each idea of the lab in short, with its formula."""

from __future__ import annotations

from typing import NamedTuple


class Idea(NamedTuple):
    """title, and what it is (Markdown with formulas)."""

    title: str
    words: str


IDEAS = (
    Idea(
        "Words of the lab",
        r"""
The **prompt** is everything the model reads before it answers: $n$ tokens. The **response** is what it writes:
$y_1 \dots y_m$, EOS not counted. The **target** is the wanted length of the response and the **signed
error** is produced minus target. The **cap** on new tokens always holds, whatever the method.
""",
    ),
    Idea(
        "LDPE and ORPE: a countdown",
        r"""
Each input token's embedding gets a vector that says how many tokens are still to come. With target $\ell$ and
position $i$, LDPE counts $c = n + \ell + 1 - i$ over prompt and response; ORPE counts over the response alone. The
count becomes $\mathrm{PE}(c, 2k) = \sin(c / 10000^{2k/d})$ and $\mathrm{PE}(c, 2k{+}1) = \cos(\cdot)$, scaled to
the size of the embeddings. At the last token the count is 1, and the next output is EOS.
""",
    ),
    Idea(
        "LRPE: stretched waves",
        r"""
Here the position counts up, and the target sets the wavelengths: $\sin\!\big(t / \ell^{\,2k/d}\big)$. At the end
$t = \ell$, and pair $k$ has turned by $\ell^{\,1-2k/d}$: by another angle at every target. Little marks the end as
such, and this model has not learnt to see it.
""",
    ),
    Idea(
        "PRE: progress as an impulse",
        r"""
Only the share $r = t/\ell$ written so far is given to the model: dimension pair $k$ gets $(\cos kr, \sin kr)$, the
impulse response of a single frequency $\omega = r\,d/2$. The prompt gets $r = 0$. Since $r$ never leaves $[0, 1]$,
targets longer than those seen in training look familiar.
""",
    ),
    Idea(
        "MNT++: a limit instead of a target",
        r"""
Trained with counts that are too large by $|\mathcal{N}(0, \sigma)|$, the model learns that it may end earlier than
the count says, but never later. At inference the number is an upper bound that the answer rounds itself off under.
""",
    ),
    Idea(
        "In the prompt, and Push the end: the baselines",
        r"""
*In the prompt* writes the target there and hopes. *Push the end* multiplies the score of EOS by a factor that
grows exponentially past the target: it ends late rather than well.
""",
    ),
    Idea(
        "RoPE and perceived distance",
        r"""
RoPE turns queries and keys by an angle proportional to their position, so a score depends on positions only through
a difference: the distance at which a key seems to lie. Every policy here is a choice of frames,
$\delta(t, j) = a(t) - b(j)$, with plain RoPE $a = t,\ b = j$. The chart of perceived positions draws $\delta$
against $t - j$.
""",
    ),
    Idea(
        "PIC: compressing position ids",
        r"""
*Naive* divides every position by $s$. *NTK* leaves positions alone and multiplies RoPE's base by $s$, which slows
the low frequencies most. *Dynamic* divides only the middle: the first $i_c$ tokens and the last $r_c$ keep their
distances, so that the local syntax stays exact while far text comes closer. A ratio below 1 stretches instead.
""",
    ),
    Idea(
        "Λ: a window with sinks",
        r"""
Each token sees the last $L$ tokens and the first $n_{\text{global}}$ (the *sinks*, on which many heads park their
attention), and no distance is perceived beyond $L$. Memory and time for one token no longer grow with the length,
and neither does the entropy's ceiling $\ln(\text{attended})$.
""",
    ),
    Idea(
        "What the four charts tell",
        r"""
**Length**: how far the answer has come, and the chance that it ends now. **Entropy** $H = -\sum_j p_j \ln p_j$:
near the ceiling a head looks everywhere, near 0 at one token; past the training length it tends to rise.
**Logits**: scores before softmax; where they explode with distance, the model was never trained there. **States**:
the first layer's outputs in two principal components, coloured by position; the Evidence tab
tells whether those beyond training leave the others.
""",
    ),
)
