"""What is kept: saved runs, results and how they were made."""
