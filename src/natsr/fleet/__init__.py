"""Many learners at once: independent forecasters of one shape that learn in one step."""
