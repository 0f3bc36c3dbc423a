"""What the operator's commands and page see of a job and do to it."""
