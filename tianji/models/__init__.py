"""Networks: in torch for learners, in numpy for actors."""
