"""``python -m e2llm_opt`` is the command line."""

from e2llm_opt.cli import main

if __name__ == "__main__":
    main()
