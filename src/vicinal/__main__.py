"""`python -m vicinal` is the `vicinal` command."""

from vicinal.service.cli import main

if __name__ == "__main__":
    main()
