"""Runs `tests.exact.replay_worker`; worker processes import the script that started them, and this one is cheap."""

if __name__ == "__main__":
    from tests.exact.replay_worker import main

    main()
