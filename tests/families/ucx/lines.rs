//! Tests where transfers were requested: the line of a frame must hold the request, in the source file on disk.

use std::path::Path;

use pyobs_tests::json;
use serde_json::Value;

use super::is_of;

/// A Python frame's function, its file, and the text of its line.
type Asked<'report> = (&'report str, &'report str, String);

fn asked(transfer: &Value) -> Vec<Asked<'_>> {
    let frames = json::list(transfer, "/stack").iter().filter(|frame| frame["kind"] == "python");
    let of = |frame| {
        let (function, file) = (json::text(frame, "/function"), json::text(frame, "/file"));
        let source = std::fs::read_to_string(file).unwrap_or_default();
        let line = usize::try_from(json::count(frame, "/line")).unwrap();
        (function, file, source.lines().nth(line - 1).unwrap_or_default().trim().to_owned())
    };
    frames.map(of).collect()
}

fn of_program<'report>(asked: &'report [Asked<'_>], program: &str) -> Vec<(&'report str, &'report str)> {
    let own = asked.iter().filter(|(_, file, _)| Path::new(file).file_name().is_some_and(|name| name == program));
    own.map(|(function, _, line)| (*function, line.as_str())).collect()
}

/// Checks ucxx_async_driver.py, whose server is this process. It awaits tag messages in tasks of their own.
pub(super) fn of_asynchronous(transfer: &Value, server: u64) {
    let asked = asked(transfer);
    let operation = json::text(transfer, "/operation");
    let own = of_program(&asked, "ucxx_async_driver.py");
    assert_eq!(own.first(), Some(&("<module>", "asyncio.run(main())")), "{transfer:#}");
    let innermost = asked.last().map_or("", |(_, _, line)| line);
    let calls = match operation {
        "multi_send" => "._ep.tag_send_multi(".to_owned(),
        "multi_recv" => "._ep.tag_recv_multi(".to_owned(),
        // The receives that are left when the other side has closed.
        "tag_recv" if transfer["tag"].is_null() => "worker.tag_recv_with_handle(".to_owned(),
        _ => format!("._ep.{operation}("),
    };
    assert!(innermost.contains(&calls), "{innermost}: {transfer:#}");
    let asks = match operation {
        "am_send" => r#"await ep.am_send(np.full(a.size, i & 255, dtype="u1"))"#,
        "multi_send" => "await ep.send_multi(fr)",
        "multi_recv" => "fr = await ep.recv_multi()",
        _ => return,
    };
    let side = match (json::count(transfer, "/pid") == server, operation.ends_with("send")) {
        (true, true) => ("server.<locals>.handler", "await xfer(ep, True, a.api, i); n += 1"),
        (true, false) => ("server.<locals>.handler", "b = await xfer(ep, False, a.api, i)"),
        (false, true) => ("client", "await xfer(ep, True, a.api, i)"),
        (false, false) => ("client", "await xfer(ep, False, a.api, i)"),
    };
    assert!(own.ends_with(&[side, ("xfer", asks)]), "{own:?} {transfer:#}");
}

/// Checks ucxx_sync_driver.py: both sides call one function, each on a line of its own.
pub(super) fn of_synchronous(transfers: &[Value], api: &str) {
    let own = transfers.iter().filter(|it| is_of(it, api) && it["parent"].is_null());
    // UCXX itself starts these receives when a message arrives.
    let own = own.filter(|it| it["operation"] != "am_recv");
    for transfer in own {
        let asked = asked(transfer);
        let of_program = of_program(&asked, "ucxx_sync_driver.py");
        let [("<module>", called), ("go", asks)] = of_program[..] else { panic!("{transfer:#}") };
        assert!(called.contains("go(ep,True,i)") && called.contains("go(ep,False,i)"), "{called} {transfer:#}");
        let call = match json::text(transfer, "/operation") {
            "multi_send" => "ep.tag_send_multi(".to_owned(),
            "multi_recv" => "ep.tag_recv_multi(".to_owned(),
            operation => format!("ep.{operation}("),
        };
        assert!(asks.contains(&call), "{asks} {transfer:#}");
    }
}
