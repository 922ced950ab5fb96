from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pydantic import TypeAdapter

from mar_st.losses import AlignmentLoss, AsymInfoNCELoss, ScoreDistillLoss
from mar_st.planning import footprint
from mar_st.planning.costs import LiveBytes, Training
from mar_st.planning.devices import DEVICES, Device
from mar_st.planning.launch import Launch, LaunchError
from mar_st.planning.plan import PlanError, Planner, fitted, plan
from mar_st.planning.workload import Column
from mar_st.recipes.load import changed, load_recipe
from mar_st.recipes.schema import Recipe, Stage
from mar_st.rehearsal.calibrate import Speed, measure
from mar_st.runs.train import train

CONFIGS = Path(str(files("mar_st") / "configs"))

ENCODERS = {
    "query": {
        "config": {
            "model_type": "gte", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "max_position_embeddings": 64,
        },
        "tokenizer": {"vocab_size": 200},
        "max_length": 32,
    },
    "document": {
        "config": {
            "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "max_position_embeddings": 64,
        },
        "tokenizer": {"vocab_size": 200},
        "max_length": 32,
    },
}  # fmt: skip

SYLLABLES = "头疼发热感冒咳嗽医生高血压糖尿病怎么办吃药检查"


@pytest.fixture
def recipe(tmp_path):
    """A MAR of all kinds of stages on 70 triples with two positives each and 13 texts."""
    triples, texts = tmp_path / "triples.jsonl", tmp_path / "texts.jsonl"

    def text(number, length):
        return "".join(SYLLABLES[(number * 7 + i * (number % 5 + 1)) % len(SYLLABLES)] for i in range(length))

    with triples.open("w", encoding="utf-8") as out:
        for i in range(70):
            row = {
                "query": f"{i}{text(i, 4)}",
                "positives": [f"{i}甲{text(i, 8)}", f"{i}乙{text(i, 12)}"],
                "negatives": [f"{i}丙{text(i, 10)}"],
            }
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    texts.write_text("".join(json.dumps({"text": f"{i}{text(i, 9)}"}) + "\n" for i in range(13)))
    shared = {"batch_size": 8, "learning_rate": 1e-3}
    return Recipe.model_validate(
        {
            "name": "planned",
            "description": "small",
            "dim": 32,
            "prompts": {"query": "问"},
            **ENCODERS,
            "data": [
                {"name": "triples", "path": str(triples), "form": "triples"},
                {"name": "one", "path": str(triples), "form": "triples", "positives": "one"},
            ],
            "stages": [
                {"stage": "contrastive", "name": "query-init", "side": "query", "temperature": 0.1, **shared},
                {"stage": "contrastive", "name": "document-init", "side": "document", "data": ["one"],
                 "temperature": 0.1, "dims": [16, 64], **shared, "epochs": 1.5},
                {"stage": "align", "name": "align", "data": ["one"], **shared},
                {"stage": "joint", "name": "joint", "temperature": 0.1, "freeze": "document", **shared,
                 "max_steps": 3},
            ],
        }
    )  # fmt: skip


def _steps_done(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return max(row["step"] for row in rows)


def test_steps_are_those_of_a_run(recipe, tmp_path):
    planned = plan(recipe)
    out = tmp_path / "run"
    train(recipe, out)
    done = {stage.name: _steps_done(next(out.glob(f"*-{stage.name}"))) for stage in recipe.stages}
    assert {stage.name: stage.steps for stage in planned.stages} == done
    assert planned.stages[0].steps == 140 // 8 + 70 // 8


def test_a_positive_per_epoch_is_a_row_per_query(recipe):
    again = changed(recipe, ["data.one.positives=one-per-epoch"])
    assert [stage.steps for stage in plan(again).stages] == [stage.steps for stage in plan(recipe).stages]


STAGES = {
    "full": {"stage": "contrastive", "side": "document", "temperature": 0.1, "dims": [16, 128]},
    "gradcache": {"stage": "contrastive", "side": "document", "temperature": 0.1, "mini_batch_size": 8},
    "lora": {
        "stage": "contrastive", "side": "document", "temperature": 0.1, "lora_r": 4,
        "gradient_checkpointing": True,
    },
    "retromae": {"stage": "retromae"},
    "retromae in passes": {"stage": "retromae", "mini_batch_size": 8},
    "accumulation": {"stage": "contrastive", "side": "query", "temperature": 0.1, "gradient_accumulation": 4},
    "distill": {"stage": "distill", "temperature": 0.1},
    "align": {"stage": "align"},
    "joint": {"stage": "joint", "temperature": 0.1},
    "frozen": {"stage": "joint", "temperature": 0.1, "freeze": "document"},
}  # fmt: skip


@pytest.mark.parametrize("kind", STAGES)
def test_memory_of_a_stage_is_what_training_it_takes(recipe, tmp_path, kind):
    """Weights, gradients, AdamW moments and activations, by an account of all tensors of a run."""
    stage = {"name": "one", "max_steps": 3, "batch_size": 32, "learning_rate": 1e-3, **STAGES[kind]}
    content = recipe.model_dump()
    content["stages"] = [stage]
    content["document"]["config"] |= {"hidden_size": 128, "intermediate_size": 512}
    content["query"]["config"] |= {"intermediate_size": 256}
    alone = Recipe.model_validate(content)
    planned = plan(alone).stages[0].memory
    with LiveBytes() as live:
        train(alone, tmp_path / "run")
    assert planned["peak"] == pytest.approx(live.peak, rel=0.25)
    assert planned["activations"] > planned["weights"] / 5  # all parts matter here


#: Losses of stages, by what is asked of them.
LOSSES = {
    "infonce": ("contrastive", {}),
    "every option": (
        "contrastive", {"learnable_temperature": True, "both_directions": True, "false_negative_margin": 0.1},
    ),
    "dims": ("contrastive", {"dims": [256, 64, 16]}),
    "distill": ("distill", {}),
    "align": ("align", {}),
    "align without scores": ("align", {"contrastive_weight": 0.0}),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize(("rows", "dim"), [(3000, 16), (1000, 256)])
def test_memory_of_a_loss_is_what_it_allocates(kind, rows, dim, monkeypatch):
    """Scores a few rows at a time, and the vectors; not the square of the batch."""
    from mar_st.losses import in_batch

    for module in (in_batch, footprint):
        monkeypatch.setattr(module, "SCORES", 2**20)
    name, fields = LOSSES[kind]
    fields = dict(fields)
    if "dims" in fields:
        fields["dims"] = [value for value in fields["dims"] if value <= dim]
    shared = {"name": "one", "batch_size": rows, "learning_rate": 1e-3, "temperature": 0.1}
    sides = {} if name == "align" else {"side": "query"}
    made = TypeAdapter(Stage).validate_python({"stage": name, **sides, **shared, **fields})
    vectors = [torch.randn(rows, dim) for _ in range(2)]
    with LiveBytes() as live:
        before = live.restart()
        columns = [vector.clone().requires_grad_() for vector in vectors]
        _loss_of(made, dim)(columns).backward()
        peak = live.peak - before
    columns = [Column("query", rows, 8, 8) for _ in range(1 if name == "align" else 2)]
    planned = footprint._loss(made, columns, 1, dim)
    assert planned == pytest.approx(peak, rel=0.3)
    if name != "align":
        assert planned < 4 * rows * rows * 3 or rows * rows < 2**20  # less than three whole matrices


def _loss_of(stage, dim):
    """The loss of a stage, as a function of the vectors of its two columns."""
    model = SimpleNamespace(similarity_fn_name="cosine", device=torch.device("cpu"))
    if stage.stage == "align":
        weights = {"contrastive_weight": stage.contrastive_weight, "mse_weight": stage.mse_weight}
        aligned = AlignmentLoss(model, **weights)
        return lambda columns: aligned.compute_loss(columns[0], columns[1].detach())
    names = ("learnable_temperature", "dims", "both_directions", "false_negative_margin")
    options = {name: getattr(stage, name) for name in names if hasattr(stage, name)}
    if stage.stage == "contrastive":
        loss = AsymInfoNCELoss(model, temperature=0.1, **options)
        return lambda columns: loss.compute_loss_from_embeddings(columns, None)
    distill = ScoreDistillLoss(model, temperature=0.1, kl_scope="batch")
    labels = torch.randn(stage.batch_size, 2, dim)
    return lambda columns: distill.compute_loss_from_embeddings(columns, labels)


def test_lengths_come_from_the_data_with_prompts_and_padding(recipe):
    planned = plan(recipe).stages[0]
    assert any("tokenizer trained" in note for note in planned.notes)
    bare = plan(recipe.model_copy(update={"prompts": {"query": ""}})).stages[0]
    assert planned.tokens_per_step == pytest.approx(bare.tokens_per_step + 8)
    assert planned.tokens == planned.steps * planned.tokens_per_step
    # Without data every text counts as max_length: a query, a positive, a negative.
    data = [entry.model_copy(update={"path": "gone.jsonl", "expected_rows": 80}) for entry in recipe.data]
    blind = plan(recipe.model_copy(update={"data": tuple(data)})).stages[0]
    assert blind.tokens_per_step == 3 * 8 * 32
    assert blind.steps == 20
    assert "max_length" in blind.notes[0]
    data = [entry.model_copy(update={"path": "gone.jsonl"}) for entry in recipe.data]
    unknown = plan(recipe.model_copy(update={"data": tuple(data)}))
    assert unknown.stages[0].steps is None
    assert unknown.hours is None
    assert "rows of triples, one are not known" in unknown.stages[0].notes[0]


def test_tokens_that_are_hidden_are_not_counted(recipe):
    def tokens(share):
        stages = [stage.model_copy(update={"token_dropout": share}) for stage in recipe.stages]
        return [stage.tokens_per_step for stage in plan(recipe.model_copy(update={"stages": stages})).stages]

    hidden = [name.stage for name in recipe.stages if hasattr(name, "token_dropout")]
    assert len(hidden) >= 3
    for stage, whole, part in zip(recipe.stages, tokens(0.0), tokens(0.25), strict=True):
        assert part == pytest.approx(whole * (0.75 if hasattr(stage, "token_dropout") else 1))


def test_large_files_are_sampled(tmp_path, recipe, monkeypatch):
    import mar_st.planning.lengths as lengths

    whole = plan(recipe)
    monkeypatch.setattr(lengths, "LARGE", 10)
    monkeypatch.setattr(lengths, "SAMPLE", 20)
    sampled = plan(recipe)
    for one, other in zip(whole.stages, sampled.stages, strict=True):
        assert other.examples == pytest.approx(one.examples, rel=0.15)
        assert other.tokens_per_step == pytest.approx(one.tokens_per_step, rel=0.2)


def test_hours_follow_speed_and_devices(recipe):
    one, two = plan(recipe, mfu=0.4), plan(recipe, mfu=0.2)
    assert two.hours == pytest.approx(2 * one.hours)
    shared = plan(recipe, world=4)
    assert shared.hours == pytest.approx(one.hours / 4, rel=0.1)  # smaller batches pad less
    assert shared.memory < one.memory
    stage = one.stages[0]
    peak = DEVICES["H100"].fp32 * 1e12
    assert stage.step_seconds == pytest.approx(sum(stage.flops_per_step.values()) / (peak * 0.4))
    measured = plan(recipe, device="cpu", measure=lambda *_: Speed(1e9, 1e-9))
    stage = measured.stages[0]
    trained = stage.parameters["query"]["trained"]
    assert stage.step_seconds == pytest.approx(stage.flops_per_step["query"] / 1e9 + trained * 1e-9)
    assert plan(recipe, device="cpu").hours is None


def test_the_frozen_encoder_is_paid_for_once(recipe):
    align = plan(recipe).stages[2]
    assert align.parameters["document"]["trained"] == 0
    assert align.flops_per_step["document"] == 0
    assert align.setup_flops > 0
    assert align.disk["teacher"] == 4 * 70 * 4 * 32  # a query, two positives, a negative; 32 floats


def test_a_stage_that_nothing_makes_fit_is_told(recipe):
    pretrained = Recipe.model_validate(
        {
            **recipe.model_dump(),
            "stages": [{"stage": "retromae", "name": "pre", "batch_size": 8, "learning_rate": 1e-3}],
        }
    )
    small = Device(None, None, 2**-20)
    (stage,) = [Planner(pretrained, small, Launch()).stage(stage) for stage in pretrained.stages]
    assert (stage.fits, stage.changes) == (False, [])
    with pytest.raises(LaunchError, match=r"checkpointing make it fit\. Or use"):
        fitted(pretrained, small, Launch())


def test_errors():
    recipe = load_recipe("medical-embedder-4b")
    with pytest.raises(PlanError, match="No device 'H1000'; known are H200, H200-NVL, H100"):
        plan(recipe, device="H1000")
    with pytest.raises(LaunchError, match="batch_size 640 is over all devices, and 7"):
        plan(recipe, world=7)


def test_speed_is_measured():
    from mar_st.planning.backbones import shape_of

    shape = shape_of(Recipe.model_fields["query"].annotation.__args__[0].model_validate(ENCODERS["query"]))
    speed = measure(shape, Training("full"), 16, seconds=0.2)
    assert 1e7 < speed.flops < 1e15
    assert speed.optimizer > 0
    assert measure(shape, Training("frozen"), 16, seconds=0.1).optimizer == 0


def test_steps_too_short_for_a_gpu_are_marked(recipe):
    bound = [
        note for stage in plan(recipe, device="H100").stages for note in stage.notes if "launches" in note
    ]
    assert len(bound) == len(recipe.stages)
    large = plan(load_recipe("mar-0.3b-4b"), device="H100")
    (joint,) = (stage for stage in large.stages if stage.name == "joint")
    assert not any("launches" in note for note in joint.notes)
    measured = plan(recipe, device="cpu", measure=lambda *_: Speed(1e15, 0.0))
    assert not any("launches" in note for stage in measured.stages for note in stage.notes)


def test_dtype_and_attention_of_a_backbone_are_planned_with():
    base = plan(load_recipe("mar-0.3b-4b"))
    wide = plan(load_recipe("mar-0.3b-4b", ["document.dtype=float32", "document.attn_implementation=eager"]))
    for before, after in zip(base.stages, wide.stages, strict=True):
        if "document" in before.parameters:
            assert before.parameters["document"]["dtype"] == "bfloat16"
            assert after.parameters["document"]["dtype"] == "float32"
            assert after.parameters["document"]["attention"] == "eager"
    weights = [found.stages[-1].memory["weights"] for found in (base, wide)]
    assert weights[1] - weights[0] == 2 * 4_022_468_096


def test_a_teacher_of_scores_is_paid_for_once(recipe):
    def joint(**changes):
        content = recipe.model_dump(mode="json")
        content["stages"][-1] |= changes
        return plan(Recipe.model_validate(content)).stages[-1]

    alone, taught = joint(freeze=None), joint(freeze=None, kl_weight=1.0)
    assert alone.setup_flops == 0
    assert taught.setup_flops > 0
    assert taught.flops_per_step == alone.flops_per_step
    assert taught.disk["teacher"] % (4 * 64) == 0  # full width
    scoring = joint(kl_weight=1.0, teacher="cross-encoder:org/name")
    assert scoring.setup_flops == 0
    assert any("not counted: what org/name says" in note for note in scoring.notes)


def test_second_texts_of_an_alignment_are_counted():
    def align(*changes):
        return plan(load_recipe("kale", list(changes))).stages[-1]

    two, one = align(), align("stages.align.text_weights=[1.0]")
    assert two.flops_per_step["query"] == pytest.approx(2 * one.flops_per_step["query"])
    assert two.steps == one.steps
    assert two.setup_flops > one.setup_flops


def test_frozen_documents_are_paid_for_once(recipe):
    def joint(**changes):
        content = recipe.model_dump(mode="json")
        content["stages"][-1] |= changes
        return plan(Recipe.model_validate(content)).stages[-1]

    read, encoded = joint(), joint(teacher="cross-encoder:org/name", kl_weight=1.0)
    assert read.flops_per_step["document"] == 0 < encoded.flops_per_step["document"]
    assert read.flops_per_step["query"] == encoded.flops_per_step["query"]
    assert read.setup_flops > 0 == encoded.setup_flops
    assert read.tokens_per_step < encoded.tokens_per_step
