//! One page that needs nothing but a browser: findings, flame graphs, a timeline, tables. It loads nothing, and its
//! policy (CSP) forbids it to.

mod table;
mod tables;
mod timeline;

use std::fmt::Write as _;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pyobs_model::Model;
use pyobs_model::findings::{Evidence, Finding};
use pyobs_model::number::grouped;
use pyobs_model::report::{Process, Report};

use self::table::{Cell, Table};
use crate::escape::{self, MAX_NAME};
use crate::names::{meta, title};
use crate::{Error, Options, Weight, svg};

/// Rows of each table.
const ROWS: usize = 500;
/// A finding's sentences are longer than a name.
const SENTENCES: usize = 4096;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// What the page may do: run its own script, and show the flame graphs, which are in it.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(crate) fn write(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let report = Report::new(model, &options.selection, Some(options.limit.unwrap_or(ROWS)));
    let heading = escape::html(&title(model, options, 120), 120);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{heading}</title>\n\
         <style>\n{STYLE}</style></head><body>\n<h1>{heading}</h1>\n"
    );
    page += &about(model, &report);
    page += &findings(&report.findings);
    out.write_all(page.as_bytes())?;
    write_flame_graphs(model, options, out)?;
    timeline::write(model, &options.selection, out)?;
    processes(&report.processes).write(out)?;
    for table in tables::all(model, &report) {
        table.write(out)?;
    }
    out.write_all(health(&report).as_bytes())?;
    Ok(out.write_all(format!("<script>\n{SCRIPT}</script>\n</body></html>\n").as_bytes())?)
}

fn text(text: &str) -> String {
    escape::html(text, MAX_NAME)
}

fn about(model: &Model, report: &Report) -> String {
    let about = model.meta();
    let samples: u64 = report.processes.iter().map(|process| process.samples).sum();
    let sentence = format!(
        "{}, {} · Linux {} · {:.1} s · {} samples at {} Hz ({}) · probes: {} · pyobs {}",
        meta(&about.host),
        meta(&about.started),
        meta(&about.kernel),
        report.recording.duration_s,
        grouped(samples),
        about.rate_hz,
        meta(&about.sampler),
        about.probes.join(", "),
        meta(&about.pyobs),
    );
    format!("<p class=\"about\">{}</p>\n", text(&sentence))
}

fn findings(findings: &[Finding]) -> String {
    let mut part = String::from("<section id=\"findings\"><h2>Findings</h2>\n");
    if findings.is_empty() {
        part += "<p>Nothing stands out.</p>\n";
    }
    for finding in findings.iter().take(ROWS) {
        let severity = finding.severity.name();
        let pid = finding.pid.map(|pid| format!(" · process {pid}")).unwrap_or_default();
        let evidence = finding.evidence.iter().map(|(name, value)| match value {
            Evidence::Count(count) => format!("{name}: {}", grouped(*count)),
            Evidence::Number(number) => format!("{name}: {number:.3}"),
            Evidence::Text(text) => format!("{name}: {text}"),
        });
        let evidence = evidence.collect::<Vec<_>>().join(" · ");
        // Writing to a string does not fail.
        let _ = writeln!(
            part,
            "<article class=\"{severity}\"><h3><b>{severity}</b> {}</h3><p>{}</p><p><b>Try</b> {}</p>\
             <small>{}{pid} · {}</small></article>",
            text(&finding.summary),
            escape::html(&finding.detail, SENTENCES),
            escape::html(&finding.advice, SENTENCES),
            text(finding.id),
            escape::html(&evidence, SENTENCES),
        );
    }
    part + "</section>\n"
}

/// Each in a frame of its own, where its script is at home; ours puts it there.
fn write_flame_graphs(model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    out.write_all(b"<section id=\"flame\"><h2>Flame graphs</h2>\n")?;
    let known = Weight::ALL.into_iter().filter(|weight| weight.is_known(model));
    for weight in known {
        let mut picture = Vec::new();
        let of_weight = Options { weight, ..options.clone() };
        svg::write(model, &of_weight, &mut picture)?;
        let height = height(&picture).unwrap_or(600);
        let open = if weight == options.weight { " open" } else { "" };
        let heading = escape::html(&title(model, &Options { title: None, ..of_weight }, 120), 120);
        let data = STANDARD.encode(&picture);
        out.write_all(
            format!(
                "<details{open}><summary>{heading}</summary><iframe title=\"{heading}\" \
                 style=\"height:{}px\" data-picture=\"{data}\"></iframe></details>\n",
                height.saturating_add(8)
            )
            .as_bytes(),
        )?;
    }
    Ok(out.write_all(b"<p class=\"note\">Click a frame to zoom, Ctrl-F to search.</p></section>\n")?)
}

/// That of the outermost element.
fn height(picture: &[u8]) -> Option<u32> {
    let head = String::from_utf8_lossy(picture.get(..2000).unwrap_or(picture));
    let (_, rest) = head.split_once("<svg")?.1.split_once(" height=\"")?;
    rest.split_once('"')?.0.parse().ok()
}

fn processes(processes: &[Process]) -> Table {
    let mut table = Table::new(
        "processes",
        "Processes",
        &["pid", "command", "Python", "CPU time", "samples", "threads", "from", "to"],
    );
    for process in processes {
        table.row([
            Cell::number(u64::from(process.pid.0)),
            Cell::text(&process.command),
            Cell::text(process.python.as_deref().unwrap_or_default()),
            Cell::time(process.cpu_s),
            Cell::count(process.samples),
            Cell::count(process.threads.len() as u64),
            Cell::at(process.started_s),
            Cell::at(process.ended_s),
        ]);
    }
    table
}

/// What was lost, and what pyobs cost.
fn health(report: &Report) -> String {
    let cost = &report.cost;
    let mut part = format!(
        "<section id=\"health\"><h2>Health</h2>\n<p>pyobs used {:.3} s of CPU time in the kernel and {:.3} s outside, and \
         {} KiB of memory.</p>\n<ul>",
        cost.bpf_s,
        cost.cpu_s,
        grouped(cost.rss_bytes >> 10)
    );
    if cost.startup_s > 0.0 {
        let _ = write!(part, "<li>Start-up work took {:.3} s of the time outside</li>", cost.startup_s);
    }
    for shed in &report.shed {
        let to = shed.to_s.map_or("the end".to_owned(), |to| format!("{to:.0} s"));
        let (family, measure) = (text(&shed.family), text(&shed.measure));
        let _ = write!(part, "<li>Shed from {:.0} s to {to}: {family} {measure}</li>", shed.from_s);
    }
    for shed in &cost.shed {
        let _ = write!(part, "<li>Left out: {}</li>", text(shed));
    }
    for (reason, count) in &report.loss {
        let _ = write!(part, "<li>Lost: {} × {}</li>", grouped(*count), text(reason));
    }
    part + "</ul></section>\n"
}
