"""An algorithm looks the same in every figure, and no two runs of a figure look alike."""

from every_algorithm import ALGORITHMS

from spyker.plots.styles import STYLES, line_styles


def test_every_algorithm_has_a_look_of_its_own() -> None:
    assert {algorithm.title for algorithm in ALGORITHMS.values()} <= STYLES.keys()
    assert len({dash for _, dash in STYLES.values()}) == len(STYLES), "also without colours"


def test_an_algorithm_looks_the_same_whoever_stands_beside_it() -> None:
    alone, beside = line_styles(["FedAsync"]), line_styles(["Spyker", "mine", "FedAsync"])
    assert alone[0] == beside[2]


def test_several_runs_of_an_algorithm_have_shades_of_its_colour_and_other_dashes() -> None:
    shown = line_styles(["Spyker", "Spyker, tuned", "Spyker, uniform", "Spyker, AWS", "Sync-Spyker"])
    for look in shown[:4]:
        red, green, blue = (int(look["color"][i : i + 2], 16) for i in (1, 3, 5))
        assert red < green < blue
    assert shown[0] == line_styles(["Spyker"])[0]
    assert len({str(look["linestyle"]) for look in shown}) == 5
    assert shown[4] == line_styles(["Sync-Spyker"])[0]


def test_others_get_what_is_free() -> None:
    shown = line_styles(["mine", "yours", "Spyker"])
    assert len({(look["color"], str(look["linestyle"])) for look in shown}) == 3
    assert shown[2] == line_styles(["Spyker"])[0]
    assert len(line_styles([*STYLES, "mine", "yours"])) == len(STYLES) + 2, (
        "and if nothing is, they are drawn all the same"
    )
