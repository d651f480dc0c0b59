//! What to try about a finding.

use pyobs_model::findings::Finding;

/// Words of the sentence of a finding's own detail that says what to try.
fn said(id: &str) -> &'static [&'static str] {
    match id {
        "arena/leaked" => &["Let go of all objects"],
        "arena/sparse" => &["Make what lives long"],
        "gil/convoy" => &["let it compute in another process"],
        "redundancy/dead-store" => &["need not be computed"],
        "redundancy/dispatch" => &["Work on whole arrays"],
        "redundancy/recomputed" => &["could be made once", "keep its result"],
        "shm/resent" => &["Send what has changed"],
        "shm/residue" => &["Remove it there"],
        "shm/unlinked_in_use" => &["attach with track=False"],
        "shm/unread" => &["leave the copy out"],
        "ucx/behind-gil" => &["give the GIL away"],
        "ucx/busy-poll" => &["leaves the core to others"],
        "ucx/no-overlap" => &["Ask for the next one"],
        "ucx/queue-grows" => &["Look at what else that thread does"],
        "ucx/unfinished" => &["Call it in a `finally`"],
        _ => &[],
    }
}

/// For those whose detail tells only what was seen.
fn own(id: &str) -> Option<&'static str> {
    Some(match id {
        "nrt/leaked" => {
            "Look there for references that are taken by hand and not given back, and let go of arrays that modules keep \
             before the program ends."
        }
        "redundancy/reread" => {
            "Nothing, unless that line is hot: then use each piece of the array for all that is computed of it before the \
             next one is loaded."
        }
        "ucx/gil-on-progress-thread" => {
            "Have Python told of transfers by UCXX's futures instead of callbacks of your own, and keep the last references \
             to what is sent in your own threads."
        }
        "ucx/resend" => "Have the other side keep it, and send only what has changed.",
        "ucx/slow-notify" => {
            "Move what runs for long in the event loop's process into another one, so that the loop comes round sooner."
        }
        "ucx/unfinished" => {
            "Wait for each transfer, or cancel it, before the process ends, also where there was an error."
        }
        _ => return None,
    })
}

/// A finding's detail without the sentence that says what to try, and that sentence, or one of ours.
pub(super) fn split(finding: &Finding) -> (String, Option<&str>) {
    let detail = finding.detail.as_str();
    let Some(at) = said(finding.id).iter().find_map(|words| detail.find(words)) else {
        return (detail.to_owned(), own(finding.id));
    };
    let (before, after) = detail.split_at(at);
    let begin = before.rfind(". ").map_or(0, |at| at + 2);
    let end = after.find(". ").map_or(detail.len(), |end| at + end + 1);
    (format!("{}{}", &detail[..begin], &detail[end..]), Some(&detail[begin..end]))
}
