//! Says what a format that shows single events does not show, because the model has those events in sums only.

use pyobs_model::number::grouped;
use pyobs_model::{EVENTS_SHOWN, Model, Nanos, Reason};

use crate::{Format, Options, Weight};

/// One sentence on what is missing and how to get it; `None` if nothing is.
pub fn left_out(model: &Model, format: Format, options: &Options) -> Option<String> {
    let (what, most) = (note(model, format, options)?, grouped(EVENTS_SHOWN as u64));
    Some(format!(
        "{format} is {what}: it shows at most the latest {most} events of each kind; export the time before in parts, with \
         --from and --to"
    ))
}

/// The same in a few words, for the file itself: `without 1,234 samples and 5 sleeps before 12.300 s`.
pub(crate) fn note(model: &Model, format: Format, options: &Options) -> Option<String> {
    let (summed, weight) = (model.summed(), options.weight);
    let of_kind = |kind| summed.get(kind).copied().unwrap_or_default();
    let shows = |of: Weight| match format {
        Format::Speedscope => weight == of,
        Format::Firefox => weight == of || matches!(of, Weight::OffCpu | Weight::Gil),
        Format::Perfetto | Format::Html => matches!(of, Weight::Cpu | Weight::OffCpu | Weight::Gil),
        // They show sums.
        _ => false,
    };
    let timed = [
        (Weight::Cpu, of_kind("samples"), model.cpu().kept_since(), "samples"),
        (Weight::OffCpu, of_kind("sleeps"), model.offcpu().kept_since(), "sleeps"),
        (Weight::Gil, of_kind("gil_waits"), model.gil().kept_since(), "waits for the GIL"),
        (Weight::Redundant, model.redundancy().accesses_summed(), model.redundancy().kept_since(), "accesses"),
    ];
    let missing = timed.into_iter().filter(|(of, count, _, _)| shows(*of) && *count > 0);
    let before = |since: Nanos| format!("before {:.3} s", since.as_secs_f64());
    let mut parts: Vec<String> =
        missing.map(|(_, count, since, name)| format!("{} {name} {}", grouped(count), before(since))).collect();
    let lives = matches!(format, Format::Firefox | Format::Perfetto | Format::Html);
    let forgotten = model.loss().get(Reason::PastForgotten);
    if lives && forgotten > 0 {
        parts.push(format!("{} arenas, segments and transfers", grouped(forgotten)));
    }
    let last = parts.pop()?;
    let first = if parts.is_empty() { String::new() } else { format!("{} and ", parts.join(", ")) };
    Some(format!("without {first}{last}"))
}
