//! A page that needs nothing but a browser: findings, flame graphs, a timeline, tables. It loads nothing, and its
//! Content-Security-Policy forbids it to.
//!
//! maud escapes what a template interpolates, in text and in attributes alike. [`text()`] is for names from watched processes:
//! it also replaces characters that are no markup but could turn the direction of writing.

mod table;
mod tables;
mod timeline;

use std::borrow::Cow;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use pyobs_model::Model;
use pyobs_model::findings::{Evidence, Finding};
use pyobs_model::number::grouped;
use pyobs_model::report::Report;

use crate::escape::{MAX_NAME, line};
use crate::names::{metadata, title};
use crate::{Error, Options, Weight, svg};

/// Rows per table, unless the caller sets a limit. The browser sorts and filters all of them at once.
const ROWS: usize = 500;
/// Longest sentence of a finding, in characters.
const MAX_SENTENCE: usize = 4096;

const STYLE: PreEscaped<&str> = PreEscaped(include_str!("html/page.css"));
const SCRIPT: PreEscaped<&str> = PreEscaped(include_str!("html/page.js"));

/// Allows the page's own script and style. The flame graphs inherit it, because they are `srcdoc` frames.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let report = Report::new(model, &options.selection, Some(options.limit.unwrap_or(ROWS)));
    let heading = title(model, options, 120);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="referrer" content="no-referrer";
                meta name="viewport" content="width=device-width";
                title { (heading) }
                style { (STYLE) }
            }
            body {
                h1 { (heading) }
                (about(model, &report))
                (findings(&report.findings))
                (INNER)
                (health(&report))
                script { (SCRIPT) }
            }
        }
    };
    write_around(page, out, |out| {
        write_flame_graphs(model, options, out)?;
        put(timeline::section(model, options), out)?;
        tables::all(model, &report).iter().try_for_each(|table| table.write(out))
    })
}

/// Marks where a template's inner parts go. They are written one by one, because together they may be large. Interpolated text
/// cannot contain the mark, because its angle brackets are escaped.
const INNER: PreEscaped<&str> = PreEscaped("<!-- inner -->");

/// Writes a template, and replaces [`INNER`] with the output of `inner`.
fn write_around(
    template: Markup,
    out: &mut dyn Write,
    inner: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    let template = template.into_string();
    let Some((before, after)) = template.split_once(INNER.0) else { return put(PreEscaped(template), out) };
    out.write_all(before.as_bytes())?;
    inner(out)?;
    Ok(out.write_all(after.as_bytes())?)
}

fn put(part: Markup, out: &mut dyn Write) -> Result<(), Error> {
    Ok(out.write_all(part.into_string().as_bytes())?)
}

/// Text from a watched process as one line, for a template to escape.
fn text(text: &str) -> Cow<'_, str> {
    line(text, MAX_NAME)
}

fn about(model: &Model, report: &Report<'_>) -> Markup {
    let about = model.meta();
    let samples: u64 = report.processes.iter().map(|process| process.samples).sum();
    let sentence = format!(
        "{}, {} · Linux {} · {:.1} s · {} samples at {} Hz ({}) · probes: {} · pyobs {}",
        metadata(&about.host),
        metadata(&about.started),
        metadata(&about.kernel),
        report.recording.duration_s,
        grouped(samples),
        about.rate_hz,
        metadata(&about.sampler),
        about.probes.join(", "),
        metadata(&about.pyobs),
    );
    html! { p.about { (text(&sentence)) } }
}

fn findings(findings: &[Finding]) -> Markup {
    html! {
        section #findings {
            h2 { "Findings" }
            @if findings.is_empty() { p { "Nothing stands out." } }
            @for finding in findings.iter().take(ROWS) {
                article class=(finding.severity.name()) {
                    h3 { b { (finding.severity.name()) } " " (text(&finding.summary)) }
                    p { (line(&finding.detail, MAX_SENTENCE)) }
                    p { b { "Try" } " " (line(&finding.advice, MAX_SENTENCE)) }
                    small {
                        (finding.id)
                        @if let Some(pid) = finding.pid { " · process " (pid.0) }
                        " · " (line(&evidence(finding), MAX_SENTENCE))
                    }
                }
            }
        }
    }
}

fn evidence(finding: &Finding) -> String {
    let evidence = finding.evidence.iter().map(|(name, value)| match value {
        Evidence::Count(count) => format!("{name}: {}", grouped(*count)),
        Evidence::Number(number) => format!("{name}: {number:.3}"),
        Evidence::Text(text) => format!("{name}: {text}"),
    });
    evidence.collect::<Vec<_>>().join(" · ")
}

/// Writes one flame graph per weight that was recorded. The page's script opens each in its own frame, because inferno's script
/// assumes that it has the whole document.
fn write_flame_graphs(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let section = html! {
        section #flame {
            h2 { "Flame graphs" }
            (INNER)
            p.note { "Click a frame to zoom, Ctrl-F to search." }
        }
    };
    write_around(section, out, |out| {
        let mut known = Weight::ALL.into_iter().filter(|weight| weight.is_known(model));
        known.try_for_each(|weight| put(flame_graph(model, options, weight)?, out))
    })
}

fn flame_graph(model: &Model, options: &Options, weight: Weight) -> Result<Markup, Error> {
    let of_weight = Options { weight, ..options.clone() };
    let mut picture = Vec::new();
    svg::write(model, &of_weight, &mut picture)?;
    let height = height(&picture).unwrap_or(600).saturating_add(8);
    let heading = title(model, &Options { title: None, ..of_weight }, 120);
    Ok(html! {
        details open[weight == options.weight] {
            summary { (heading) }
            iframe title=(heading) style={ "height:" (height) "px" } data-picture=(STANDARD.encode(&picture)) {}
        }
    })
}

/// The height of a picture's outermost element.
fn height(picture: &[u8]) -> Option<u32> {
    let head = String::from_utf8_lossy(picture.get(..2000).unwrap_or(picture));
    let (_, rest) = head.split_once("<svg")?.1.split_once(" height=\"")?;
    rest.split_once('"')?.0.parse().ok()
}

/// What was lost, and what pyobs cost.
fn health(report: &Report<'_>) -> Markup {
    let cost = &report.cost;
    html! {
        section #health {
            h2 { "Health" }
            p {
                "pyobs used " (format_args!("{:.3}", cost.bpf_s)) " s of CPU time in the kernel and "
                (format_args!("{:.3}", cost.cpu_s)) " s outside, and " (grouped(cost.rss_bytes >> 10)) " KiB of memory."
            }
            ul {
                @if cost.startup_s > 0.0 {
                    li { "Start-up work took " (format_args!("{:.3}", cost.startup_s)) " s of the time outside" }
                }
                @for shed in &report.shed {
                    @let to = shed.to_s.map_or("the end".to_owned(), |to| format!("{to:.0} s"));
                    li {
                        "Shed from " (format_args!("{:.0}", shed.from_s)) " s to " (to) ": "
                        (text(&shed.family)) " " (text(&shed.measure))
                    }
                }
                @for shed in &cost.shed { li { "Left out: " (text(shed)) } }
                @for (reason, count) in &report.loss { li { "Lost: " (grouped(*count)) " × " (text(reason)) } }
            }
        }
    }
}
