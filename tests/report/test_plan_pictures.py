"""Are pictures of plans written as publishers want them?"""

import numpy as np

from dpsparfl_jax.report import plan_pictures


def test_pdf_files_have_fonts_that_publishers_take(tmp_path):
    figure = plan_pictures.epsilon_figure({"pld": np.arange(9.0)}, [4.0], 1e-3, "a")
    plan_pictures.save(figure, str(tmp_path / "a.pdf"))
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/TrueType" in content or b"/CIDFontType2" in content
