"""Parts of the recipe that the tests of sides share."""

from __future__ import annotations

ROWS = [(s + q, a.format(s)) for s in ("头疼", "发热", "咳嗽", "胸闷") for q, a in
        (("吃什么药", "{}患者可以服用药物"), ("挂什么科", "{}应到门诊挂号"))]  # fmt: skip
SHAPE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
         "max_position_embeddings": 64, "initializer_range": 0.2}  # fmt: skip
TOKENIZER = {"vocab_size": 100, "max_token_length": 2}
QUERY = {"max_length": 24, "tokenizer": TOKENIZER, "config": {**SHAPE, "model_type": "gte"}}
FAST = {"batch_size": 4, "learning_rate": 1.0e-3, "epochs": 1}
CONTRASTIVE = {**FAST, "stage": "contrastive", "temperature": 0.1}
DOCUMENT_INIT = {**CONTRASTIVE, "name": "document-init", "side": "document"}
QUERY_INIT = {**CONTRASTIVE, "name": "query-init", "side": "query"}
ALIGN = {**FAST, "stage": "align", "name": "align"}
JOINT = {**FAST, "stage": "joint", "name": "joint", "temperature": 0.1}
