from __future__ import annotations

import json
import shutil

from mar_st.lookup.fit import fit_lookup
from mar_st.model.describe import describe
from mar_st.model.family import add_query_encoder


def _parameters(mar, route):
    return sum(parameter.numel() for parameter in mar.route_modules(route)[0].parameters())


def test_a_saved_mar_is_described(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    description = describe(tmp_path)
    assert json.loads(json.dumps(description)) == description
    assert list(description["routes"]) == ["query", "document"]
    query, document = description["routes"]["query"], description["routes"]["document"]
    assert (query["model_type"], query["hidden_size"], query["layers"]) == ("gte", 32, 2)
    assert (document["model_type"], document["hidden_size"], document["layers"]) == ("qwen3", 64, 2)
    assert query["parameters"] == _parameters(mar, "query")
    assert document["parameters"] == _parameters(mar, "document")
    assert description["similarity"] == "cosine"
    assert description["prompts"] == dict(mar.prompts)


def test_a_missing_route_is_reported(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    for folder in tmp_path.glob("document_*"):
        shutil.rmtree(folder)
    routes = describe(tmp_path)["routes"]
    assert routes["query"]["present"]
    assert not routes["document"]["present"]
    assert "parameters" not in routes["document"]


def test_parameters_of_weights_that_are_no_safetensors_are_unknown(mar, tmp_path):
    mar.save_pretrained(str(tmp_path))
    weights = tmp_path / "query_0_Transformer" / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    routes = describe(tmp_path)["routes"]
    assert routes["query"]["parameters"] is None
    assert routes["document"]["parameters"] == _parameters(mar, "document")


def test_a_lookup_encoder_and_further_query_encoders_are_described(mar, tmp_path):
    texts = [f"头疼{i}" for i in range(30)]
    fitted = fit_lookup(texts, mar.encode_queries(texts), ridge=1.0)
    mar.save_pretrained(str(tmp_path / "mar"))
    add_query_encoder(tmp_path / "mar", [fitted], "query-lookup")
    routes = describe(tmp_path / "mar")["routes"]
    assert sorted(routes) == ["document", "query", "query-lookup"]
    lookup = routes["query-lookup"]
    assert (lookup["model_type"], lookup["hidden_size"], lookup["layers"]) == ("LookupEncoder", 32, None)
    assert lookup["parameters"] == sum(parameter.numel() for parameter in fitted.parameters())
