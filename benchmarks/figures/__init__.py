"""The paper's figures, measured and drawn again."""
