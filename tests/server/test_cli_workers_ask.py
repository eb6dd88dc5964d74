"""`podium workers --ask`: whether the models themselves reply, not only their endpoints."""

from tests.command_line import CommandLine
from tests.provider_simulator import Answer, Asked, Provider, openai_error, openai_reply

MODELS = Answer(document={"data": [{"id": "well"}, {"id": "ill"}]})
POOL = """
[[worker]]
name = "{name}"
kind = "openai"
model = "{name}"
base_url = "{url}/v1"
price = {{ input = 1.0, output = 1.0 }}
"""


def answer(asked: Asked) -> Answer:
    """An endpoint that is well, one of whose models is not."""
    if asked.method == "GET":
        return MODELS
    if asked.body["model"] == "ill":
        return openai_error(500, "The model broke down.")
    return openai_reply("ready")


def test_an_endpoint_that_is_well_is_told_from_a_model_that_is_not(
    podium: CommandLine, provider: Provider
):
    provider.answers(answer)
    podium.pool.write_text(
        "".join(POOL.format(name=name, url=provider.url) for name in ("well", "ill"))
    )
    assert [row["healthy"] for row in podium.inside("workers", "--json").rows] == [True, True]

    asked = podium.inside("workers", "--ask", "--json")

    assert asked.code == 1
    well, ill = asked.rows
    assert well["healthy"] is True
    assert "it replied in" in str(well["detail"])
    assert "$" in str(well["detail"])
    assert ill["healthy"] is False
    assert "The model broke down." in str(ill["detail"])
    assert [one.method for one in provider.requests].count("POST") == 2


def test_workers_that_all_reply_are_well(podium: CommandLine):
    assert podium.inside("workers", "--ask").code == 0
