"""What the paper's release and other libraries say in their own words, in those used here."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tianji.config.section import Section, nearest

ENVIRONMENT_SIZES = "sizes follow from the environment"


@dataclass(frozen=True)
class Spoken:
    """A model of the release: its type here, and what its keys are called, or why they are idle."""

    type: str
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    idle: Mapping[str, str] = dataclasses.field(default_factory=dict)
    layers: int = 0  # dense layers that `mlp_dim` gives a size to


MODELS: Mapping[str, Spoken] = {
    "AtariModel": Spoken("CNN"),
    "PPOAtari": Spoken(
        "CNN",
        keys={"action_dim": "c2"},
        idle={"state_dim": "the wrappers say how many frames are stacked"},
    ),
    "PPOActorCritic": Spoken(
        "MLP",
        keys={
            "actor_state_dim": "c1",
            "state_dim": "c1",
            "actor_action_dim": "c2",
            "action_dim": "c2",
        },
        idle={"critic_state_dim": "the value network sees what the policy sees"},
        layers=2,
    ),
    "ActorCritic": Spoken(
        "MLP",
        idle=dict.fromkeys(
            ("actor_state_dim", "actor_action_dim", "critic_dim"), ENVIRONMENT_SIZES
        ),
        layers=2,
    ),
    "GRU": Spoken(
        "GRU", keys={"gru_dim": "gru"}, idle=dict.fromkeys(("c1", "c2"), ENVIRONMENT_SIZES)
    ),
}
"""The networks of the release that have another name or other keys here."""

NEW_VERSIONS = {
    "LunarLander-v2": "LunarLander-v3",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
}
"""Tasks that gymnasium has in a newer version only."""

GAME = "NoFrameskip-v"  # in the name of an Atari game that is wrapped by hand
PRIORITISED = "DQNPrioritiesHead"

NEVER = "the paper used it, but it was never released: write your own as 'module:Class'"
UNRELEASED = dict.fromkeys(("PredatorEnv", "AirFightEnv", "JSBSimEnv"), NEVER)
"""Environments of the release's configs whose code is not in the release."""

MIXER_KEYS = {"mixer_dim": "mixing_units", "hypernet_dim": "hyper_units"}
RELEASE_EPSILON = 0.01  # where exploration ends in the release's QMIX
RELEASE_QMIX = {"target_tau": None, "td_lambda": 0.0, "optimiser": "rmsprop"}

UNRELEASED_AGENTS = {
    "PredatorQMIX": "its PredatorEnv was never released: use QMIX in an environment of your own"
}
UNRELEASED_HEADS = {"PredatorMixerHead": UNRELEASED_AGENTS["PredatorQMIX"]}

ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("n_steps", "num_steps"), "hyp.step_len"),
    "learning_rate": "hyp.lr",
    **dict.fromkeys(("n_epochs", "update_epochs"), "hyp.update_step"),
    "num_minibatches": "hyp.minibatch, the samples in each",
    **dict.fromkeys(("clip_range", "clip_coef"), "hyp.clip_param"),
    "clip_range_vf": "hyp.value_clip",
    "target_kl": "hyp.kl_target",
    "tau": "hyp.target_tau",
    "learning_starts": "hyp.warmup_size",
    **dict.fromkeys(
        ("target_update_interval", "target_network_frequency"),
        "hyp.target_replace_iter, in updates",
    ),
    **dict.fromkeys(("exploration_final_eps", "end_e"), "hyp.epsilon"),
    "exploration_fraction": "hyp.max_decay_step, in environment steps",
    **{name: f"hyp.{name}" for name in ("gamma", "ent_coef", "vf_coef", "buffer_size")},
    "max_grad_norm": "hyp.max_grad_norm",
    **dict.fromkeys(("n_envs", "num_envs"), "actor_cfg.envs, of each actor"),
    "total_timesteps": "exp.train_steps",
    "eval_freq": "exp.eval_step",
    "n_eval_episodes": "exp.eval_times",
    **dict.fromkeys(("net_arch", "policy_kwargs"), "model.hidden, as in [64, 64]"),
    "activation_fn": "model.act",
    **dict.fromkeys(
        ("train_freq", "train_frequency", "gradient_steps"),
        "global_cfg.replay_ratio, samples consumed per sample produced",
    ),
    "env_id": "environment.gym_name",
}
"""What Stable-Baselines3 and CleanRL call our keys."""


def called_here(name: str, where: str = "", known: Collection[str] = ()) -> str:
    """A sentence with our name for another library's; nothing if section `where` lacks that key."""
    ours = ELSEWHERE.get(name.lower(), "")
    section, _, key = ours.partition(",")[0].partition(".")
    there = ours and (section != where or key in known)
    return f"Here it is {ours}." if there else ""


def translated(tree: Section, notices: list[str]) -> Section:
    """The sections in the words of this package; `notices` tell where that changes a meaning."""
    tree = _environment(tree, notices)
    tree = _model(tree, notices)
    tree = _mixer(tree, notices)
    tree = _agent(tree, notices)
    return _publishing(tree, notices)


def evaluated(tree: Section, notices: list[str]) -> Section:
    """`exp.eval_step` of a file of the release, whose evaluations are so many episodes apart."""
    exp = tree.get_section("exp")
    n, limit, place = exp.get("eval_step"), exp.get("max_step"), exp.at("eval_step")
    if not isinstance(n, int):
        return tree
    why = "the release counts episodes, and exp.max_step does not say how long one is"
    if isinstance(limit, int):
        why = f"episodes in the release, of at most {limit} (exp.max_step)"
        n *= limit
    notices.append(f"{place}: exp.eval_step {exp['eval_step']} is read as {n} steps: {why}")
    return _put(tree, "exp", exp.replaced("eval_step", n, place))


def _environment(tree: Section, notices: list[str]) -> Section:
    section = tree.get_section("environment")
    name, place = section.get("gym_name"), section.at("gym_name")
    if new := NEW_VERSIONS.get(name) if isinstance(name, str) else None:
        notices.append(f"{place}: environment.gym_name {name!r} is read as {new!r}, its successor")
        section = section.replaced("gym_name", new, place)
    wrapped = section.get("wrappers") and section.get("type", "GymEnv") == "GymEnv"
    if wrapped and isinstance(name, str) and GAME in name:
        notices.append(
            f"{section.at('type')}: environment.type 'GymEnv' is read as 'AtariEnv', to which the "
            f"wrappers of {name} belong"
        )
        section = section.replaced("type", "AtariEnv", section.at("type"))
    if section.get("type") == "StarCraft2Env" and section.get("render") is True:
        reason = "StarCraft II shows its games itself, as replays: replay_dir='...'"
        notices.append(_idle(section, "environment", "render", reason))
        section = section.without("render")
    return _put(tree, "environment", section)


def _model(tree: Section, notices: list[str]) -> Section:
    section = tree.get_section("model")
    kind = section.get("type")
    spoken = MODELS.get(kind) if isinstance(kind, str) else None
    if spoken is None:
        return tree
    for word in section.written:
        place = section.at(word)
        if word in spoken.idle:
            notices.append(_idle(section, "model", word, spoken.idle[word]))
            section = section.without(word)
        elif word == "mlp_dim" and spoken.layers and word in section:
            hidden = (section[word],) * spoken.layers
            section = section.without(word).replaced("hidden", hidden, place)
        elif word in spoken.keys and word in section:
            ours = spoken.keys[word]
            if ours in section:
                raise place.error(
                    f"model: {word!r} is the same key as another: write {ours!r} once"
                )
            section = section.without(word).replaced(ours, section[word], place)
    return _put(tree, "model", section.replaced("type", spoken.type, section.at("type")))


def _mixer(tree: Section, notices: list[str]) -> Section:
    """QMIX as the release has it: whole episodes, hard targets, exploration that ends early.

    Its EPSILON is where exploration begins, and its steps of decay are updates.
    """
    if "mixer_model" not in tree:
        return tree
    mixer, hyp = tree.get_section("mixer_model"), tree.get_section("hyp")
    place, limit = tree.at("mixer_model"), tree.get_section("exp").get("max_step")
    for word in mixer.written:
        if word in MIXER_KEYS:
            hyp = hyp.replaced(MIXER_KEYS[word], mixer.get(word), mixer.at(word))
        elif word in ("agent_num", "state_shape"):
            notices.append(_idle(mixer, "mixer_model", word, ENVIRONMENT_SIZES))
        elif word != "type":
            hint = nearest(word, ("type", "agent_num", "state_shape", *MIXER_KEYS), "Its keys")
            raise mixer.at(word).error(f"mixer_model has no key {word!r}. {hint}")
    said = {word.lower(): word for word in hyp.written}
    if "epsilon" in said:
        hyp = hyp.replaced(said["epsilon"], RELEASE_EPSILON, hyp.at(said["epsilon"]))
    if "max_decay_step" in said:
        word = said["max_decay_step"]
        updates, at = hyp.get(word), hyp.at(word)
        hyp = hyp.replaced(word, 0, at).replaced("decay_updates", updates, at)
    for word in ("buffer_size", "warmup_size"):
        if isinstance(limit, int) and isinstance(hyp.get(word), int):
            hyp = hyp.replaced(word, hyp[word] * limit, hyp.at(word))
    whole = {} if limit is None else {"step_len": limit}
    for word, value in {**whole, **RELEASE_QMIX}.items():
        if word not in said:
            hyp = hyp.replaced(word, value, place)
    notices.append(
        f"{place}: hyp is read as the release has it for QMIX: sizes in episodes of exp.max_step "
        f"steps, epsilon down to {RELEASE_EPSILON} over max_decay_step updates, RMSprop, targets "
        "that are copied"
    )
    return _put(tree.without("mixer_model"), "hyp", hyp)


def _agent(tree: Section, notices: list[str]) -> Section:
    agent, hyp = tree.get_section("agent"), tree.get_section("hyp")
    if agent.get("embryo") == PRIORITISED:
        place = agent.at("embryo")
        notices.append(
            f"{place}: embryo {PRIORITISED!r} is read as 'DQNHead' with hyp.prioritised=True"
        )
        tree = _put(tree, "agent", agent.replaced("embryo", "DQNHead", place))
        tree = _put(tree, "hyp", hyp.replaced("prioritised", True, place))
    if agent.get("alg_type") == "on-policy" and "buffer_size" in hyp:
        reason = "on-policy training keeps no old rollouts (without alg_type it would be Lag-k)"
        notices.append(_idle(hyp, "hyp", "buffer_size", reason))
        tree = _put(tree, "hyp", hyp.without("buffer_size"))
    return tree


def _publishing(tree: Section, notices: list[str]) -> Section:
    """In the release actors of a group also get the weights that a fusion has made."""
    parallel = tree.get_section("parallel_parameters")
    learner = parallel.get_section("learner_cfg")
    fused = parallel.get_section("global_cfg").get("use_group_parallel") is True
    written, interval = learner.get("send_interval"), learner.get("send_root_interval")
    if not fused or not isinstance(written, int) or not isinstance(interval, int):
        return tree
    if written <= interval:
        return tree
    place = learner.at("send_interval")
    notices.append(
        f"{place}: learner_cfg.send_interval {written} is read as {interval}: actors get the "
        "weights of every fusion"
    )
    learner = learner.replaced("send_interval", interval, place)
    return _put(tree, "parallel_parameters", _put(parallel, "learner_cfg", learner))


def _put(tree: Section, name: str, section: Section) -> Section:
    return tree.replaced(name, section, tree.at(name)) if section or name in tree else tree


def _idle(section: Section, where: str, word: str, reason: str) -> str:
    return f"{section.at(word)}: {where}.{word} has no effect here: {reason}"
