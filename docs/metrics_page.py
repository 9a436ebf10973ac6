"""Generates docs/metrics.md, the table of every metric: python docs/metrics_page.py."""

from __future__ import annotations

from dataclasses import dataclass

from tianji.observe.metrics import METRICS


@dataclass(frozen=True)
class Other:
    """A name of Stable-Baselines3 for which there is something here."""

    theirs: str
    ours: str
    difference: str = "none"


OTHERS = (
    Other("rollout/ep_rew_mean", "rollout/ep_rew_mean"),
    Other("rollout/ep_len_mean", "rollout/ep_len_mean"),
    Other("time/episodes", "rollout/episodes", "the name"),
    Other("time/fps", "time/fps", "over the last second, theirs since the start"),
    Other("time/time_elapsed", "time/time_elapsed", "from the moment all roles were ready"),
    Other("time/total_timesteps", "time/total_timesteps"),
    Other("time/iterations", "updates", "the name; one for each batch of rollouts (PPO)"),
    Other("train/n_updates", "train/n_updates", "PPO: theirs counts every epoch"),
    Other("train/loss", "train/loss", "DQN alone"),
    Other("train/policy_gradient_loss", "train/policy_gradient_loss"),
    Other("train/value_loss", "train/value_loss"),
    Other("train/entropy_loss", "train/entropy_loss"),
    Other("train/approx_kl", "train/approx_kl"),
    Other("train/clip_fraction", "train/clip_fraction"),
    Other("eval/mean_reward", "eval/mean_reward"),
    Other("eval/mean_ep_length", "eval/mean_ep_length"),
)

PAGE = """# Metrics

While a run goes on, rows of metrics are added to `metrics.jsonl` in its folder: one a second, and
before a minute has gone by one whenever training has got on and lasted 1/64 longer, so that a run
of a second has a curve too. The same numbers go to a TensorBoard event file beside it, once a
second (`tensorboard --logdir runs`). Rates and the shares of busy and idle time are over the last
second, or so far while the run is shorter; everything else is so far. A number that does not exist
yet, or is not finite, is `null`. Produced, received and consumed are counted in valid environment
steps, for every algorithm. `eval/*` stands only in the row after an evaluation has come;
`evaluations.jsonl` has every game of every evaluation, and the steps and updates behind the weights
that played.

`<role>` is the name of a role, as in `actor-0.3`: group 0, actor 3. `<scalar>` is whatever the
algorithm's `learn` returns. With several groups or learners, counts and rates are of all of them
together, staleness is over the samples of all, and scalars are means over all learners.

This page is generated: `python docs/metrics_page.py > docs/metrics.md`.

| metric | unit | meaning |
|---|---|---|
{metrics}
There is no time that a role waits to send or to receive: no role does. A full channel says no
(`comm/refused`), and the role does something else; if nobody in its process has anything to do,
that is `roles/<role>/idle`. What it waited for is `roles/<role>/wait_...`, by what it lacked when
its process went to sleep; these add up to `idle`. So of every process the busy shares of its roles,
the waits of any one of them, paused and overhead are 100 % (a buffer that works in a thread beside
its learner comes on top). In the local engine, where nobody sleeps, they are only near it.

## Weights & Biases, trackio

`tianji train ... --track wandb` (or `trackio`, or both; `track=["wandb"]` in `exp`) sends every row
there too. Install them with `pip install 'tianji[wandb]'`. A process of its own does the sending,
begins with the first row and writes what it has to say to `logs/wandb.log`: a slow network delays
nothing, and a tracker that fails is a warning. The project is `tianji` unless `WANDB_PROJECT` or
`TRACKIO_PROJECT` names another; the run is named after its folder, and `tracking.json` keeps its id
so that a resumed run goes on as the same one. In Weights & Biases the x axis is `env_steps`.

## A run that was resumed

A resumed run goes on from its last checkpoint and forgets what it did after it. The rows of that
lost work go to `metrics.lost.jsonl`, and TensorBoard is told to leave them out.

## Names of Stable-Baselines3

| Stable-Baselines3 | here | difference |
|---|---|---|
{others}"""


def page() -> str:
    """The text of docs/metrics.md."""
    return PAGE.format(
        metrics="".join(f"| `{m.name}` | {m.unit} | {m.meaning} |\n" for m in METRICS),
        others="".join(f"| `{o.theirs}` | `{o.ours}` | {o.difference} |\n" for o in OTHERS),
    )


if __name__ == "__main__":
    print(page(), end="")
