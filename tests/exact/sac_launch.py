"""Runs `tests.exact.sac_worker`; worker processes import the script that started them, and this one costs nothing."""

if __name__ == "__main__":
    from tests.exact.sac_worker import main

    main()
