//! Memory held by Numba's runtime, by the line that made it.

use pyobs_model::Selection;
use pyobs_model::views;

use super::ReportText;

impl ReportText<'_> {
    pub(super) fn nrt(&mut self) {
        self.section("MemInfos", "memory of code compiled by Numba, by the line that it was made at");
        let rows = views::meminfos(self.model, &Selection::default());
        self.births(&rows, "freed");
    }
}
