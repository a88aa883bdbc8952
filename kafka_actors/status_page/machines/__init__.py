"""What a status page says and how it is asked: pure, time passed in."""
