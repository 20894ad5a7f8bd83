"""`python -m holdfast`: the command line."""

from holdfast.cli import main

if __name__ == "__main__":
    main()
