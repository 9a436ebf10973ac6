"""The launcher's side of evaluation: says when, writes down what came of it, keeps the best."""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tianji.core.algorithm import Saved, Weights
from tianji.core.channel import Inbox, Message
from tianji.job.factory import make_games_env
from tianji.job.job import Job
from tianji.observe.evaluation_file import add_row
from tianji.observe.watch import Progress
from tianji.roles.evaluation import Evaluation, Games, env_seed, evaluation_of, outcome
from tianji.runs.weights_file import best_merit, merit_of, save_best

MOST_SEEN = 10_000  # moments remembered; beyond them every second one goes
LAST_SECONDS = 5.0  # that the games of the final weights may take
CLOSE_SECONDS = 2.0  # that their environments may then take to close
LOOK_SECONDS = 0.05  # from one look at these games to the next


class Engine(Protocol):
    """Whoever passes orders on to the evaluator."""

    evaluations: Inbox | None  # where its answers come
    evaluator_lost: bool

    def evaluate(self, number: int) -> None:
        """Asks for an evaluation of the newest weights."""


class EvaluationSchedule:
    """Orders an evaluation every `exp.eval_step` environment steps; never waits for one.

    An order that comes while the evaluator is still playing replaces the one that waits.
    """

    def __init__(
        self,
        job: Job,
        folder: Path,
        engine: Engine,
        tell: Callable[[Evaluation, int], float],
        warn: Callable[[str], None],
    ) -> None:
        self._job = job
        self._config = job.config
        self._folder = folder
        self._engine = engine
        self._tell = tell  # an evaluation and its environment steps; answers with the time
        self._warn = warn
        self._waiting: list[dict[str, Any]] = []  # rows that could not be written yet
        self._best = best_merit(folder)
        self._evaluated: int | None = None  # the version that was evaluated last
        self._due: int | None = None
        self._n_orders = 0
        self._seen: list[tuple[int, int]] = []  # (updates, environment steps), as time went by

    def tick(self, progress: Progress) -> None:
        """Orders what is due and takes what has come; nearly always there is neither."""
        every, steps = self._config.exp.eval_step, progress.produced
        if every is None or not progress.updates:
            return
        self._see(progress.version, steps)
        self._take_all()
        if self._due is not None and steps >= self._due:
            self._n_orders += 1
            self._engine.evaluate(self._n_orders)
        if self._due is None or steps >= self._due:
            self._due = steps - steps % every + every

    def close(
        self, learned: Saved | None = None, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """Takes what came last, and plays with the weights that a run has ended with, if given.

        The evaluator gave up what it was playing, and nobody trains any more: to wait a moment for
        the end's own evaluation holds nobody up. If somebody has `interrupted`, it is given up.
        """
        self._take_all()
        if self._config.exp.eval_step is None:
            return
        if learned is not None and learned.version != self._evaluated:
            self._play_last(learned, interrupted)
        if self._waiting:
            self._written(self._write)

    def _see(self, updates: int, steps: int) -> None:
        if not self._seen or updates > self._seen[-1][0]:
            self._seen.append((updates, steps))
        if len(self._seen) > MOST_SEEN:
            del self._seen[:-1:2]  # never the last one

    def _take_all(self) -> None:
        answers = self._engine.evaluations
        while answers is not None and (message := answers.take()) is not None:
            self._take(message)

    def _steps_at(self, version: int) -> int:
        """Environment steps that had been made when the learner had this version.

        Progress is seen now and then, so an answer may be about a version that is newer than all of
        it: then the last steps that were seen are the nearest.
        """
        if not self._seen:
            return 0
        place = min(bisect_left(self._seen, (version, 0)), len(self._seen) - 1)
        del self._seen[:place]  # later answers are about later versions
        return self._seen[0][1]

    def _take(self, message: Message) -> None:
        arrays, seed = message.arrays, self._config.exp.seed
        returns, lengths, won = (arrays[name] for name in ("returned", "length", "won"))
        version = int(arrays["version"])
        evaluation = evaluation_of(returns, lengths, won, version, seed)
        self._record(evaluation, arrays["weights"], self._steps_at(version))

    def _play_last(self, learned: Saved, interrupted: Callable[[], bool]) -> None:
        if self._engine.evaluator_lost:  # in games that might take this process along, too
            self._warn("the final weights were not evaluated: the evaluator was lost")
            return
        evaluation = self._in_time(learned, interrupted)
        if evaluation is None:
            return
        steps = learned.env_steps
        self._record(
            evaluation,
            learned.weights,
            self._steps_at(learned.version) if steps is None else steps,
        )

    def _not_evaluated(self, why: str) -> None:
        self._warn(
            f"the final weights were not evaluated: {why}; "
            f"tianji eval {self._folder} plays without a limit"
        )

    def _in_time(self, learned: Saved, interrupted: Callable[[], bool]) -> Evaluation | None:
        """What the final weights play, in a thread that is left to itself if it hangs."""
        found: list[Evaluation | BaseException | None] = []
        enough = threading.Event()

        def play() -> None:
            try:
                found.append(self._played(learned, enough))
            except BaseException as error:  # also `SystemExit`: the run is written down anyway
                found.append(error)

        player = threading.Thread(target=play, name="last games", daemon=True)
        player.start()
        until = time.monotonic() + LAST_SECONDS
        while player.is_alive() and time.monotonic() < until and not interrupted():
            player.join(LOOK_SECONDS)
        enough.set()
        player.join(CLOSE_SECONDS)
        result = found[0] if found else None
        if isinstance(result, Evaluation):
            return result
        if result is not None:
            said = f"{type(result).__name__}: {result}"
            self._warn(f"the final weights could not be evaluated: {said}")
        elif found:
            why = f"their games had not ended after {LAST_SECONDS:g} s"
            self._not_evaluated("a signal came first" if interrupted() else why)
        else:
            self._warn(
                "the final weights were not evaluated: their environment did not come back within "
                f"{LAST_SECONDS + CLOSE_SECONDS:g} s:\n{_stack_of(player)}"
            )
        return None

    def _played(self, learned: Saved, enough: threading.Event) -> Evaluation | None:
        """The same games as the evaluator's; None if it was `enough` before their end."""
        n_episodes, seed = self._config.exp.eval_times, self._config.exp.seed
        policy = self._job.algorithm.policy(self._job.task, 0, seed)
        policy.load(learned.weights, learned.version)
        env = make_games_env(self._config, n_episodes)
        try:
            games = Games(env, policy, n_episodes)
            games.reset(env_seed(seed))
            while not games.step():
                if enough.is_set():
                    return None
        finally:
            env.close()
        return outcome(games, learned.version, seed)

    def _record(self, evaluation: Evaluation, weights: Weights, steps: int) -> None:
        self._evaluated = evaluation.version
        wall = self._tell(evaluation, steps)
        self._waiting.append(evaluation.row("training", steps, wall))
        self._written(self._write)
        merit = merit_of(evaluation.win_ratio, evaluation.mean)
        if math.isfinite(evaluation.mean) and (self._best is None or merit > self._best):
            self._written(lambda: self._keep(evaluation, weights, steps))

    def _keep(self, evaluation: Evaluation, weights: Weights, steps: int) -> None:
        name, mean, won = self._config.agent.type, evaluation.mean, evaluation.win_ratio
        save_best(self._folder, weights, evaluation.version, name, mean, steps, won)
        self._best = merit_of(won, mean)

    def _write(self) -> None:
        while self._waiting:
            add_row(self._folder, self._waiting[0])
            self._waiting.pop(0)

    def _written(self, write: Callable[[], None]) -> None:
        """What the disk refuses is said, and holds up nothing."""
        try:
            write()
        except OSError as error:
            self._warn(f"an evaluation could not be written: {error.strerror}; training goes on")


def _stack_of(thread: threading.Thread) -> str:
    """Where a thread is, as a traceback has it."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)).rstrip() if frame is not None else ""
