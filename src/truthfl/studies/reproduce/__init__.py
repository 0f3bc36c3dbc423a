"""The paper's figures and claims, made again. One module per figure."""
