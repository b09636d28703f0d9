"""The totally ordered log: COREL over the membership. Not built yet."""
