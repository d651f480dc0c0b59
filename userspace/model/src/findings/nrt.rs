//! MemInfos of Numba's runtime that were still alive when their process ended.

use std::collections::BTreeMap;

use super::{Cost, Evidence, Finding, Severity, Target, own_place};
use crate::families::nrt::{Site, SiteSum};
use crate::number::{plural, size};
use crate::views::birthplace;
use crate::{Model, Selection};

pub(super) fn find(model: &Model, selection: &Selection) -> Vec<Finding> {
    let sums = model.nrt().sums().filter(|(site, sum)| selection.has_process(site.process) && sum.live() > 0);
    let ended = |site: Site| model.process(site.process)?.ended.filter(|at| selection.lasting().has_time(*at));
    sums.filter(|(site, _)| ended(*site).is_some()).filter_map(|(site, sum)| leaked(model, site, sum)).collect()
}

fn leaked(model: &Model, site: Site, sum: &SiteSum) -> Option<Finding> {
    let state = model.process(site.process)?;
    let line = own_place(model, Some(site.stack));
    let (live, bytes) = (sum.live(), size(sum.bytes));
    let (left, were) = (plural(live, "MemInfo", "MemInfos"), if live == 1 { "was" } else { "were" });
    let detail = format!(
        "{live} of the {} born at {line} {were} not freed before the process ended. Their data has {bytes}. \
         Either something still referred to them, or a reference was taken and never given back: an array whose base was \
         acquired by hand, or native code that increments without decrementing.",
        plural(sum.born, "MemInfo", "MemInfos"),
    );
    let advice = "Look where they are born for references that are taken by hand and not given back, and let go of \
                  arrays that modules keep before the program ends.";
    Some(Finding {
        id: "nrt/leaked",
        severity: Severity::Warning,
        summary: format!("{left} ({bytes}) born at {line} {were} left when the process ended"),
        detail,
        advice: advice.to_owned(),
        process: Some(site.process),
        pid: Some(state.process.pid),
        evidence: BTreeMap::from([
            ("live", Evidence::Count(live)),
            ("bytes", Evidence::Count(sum.bytes)),
            ("born", Evidence::Count(sum.born)),
            ("line", Evidence::Text(line)),
        ]),
        cost: Cost::bytes(sum.bytes),
        target: Some(Target::MemInfos(birthplace(model, Some(site.stack)))),
    })
}
