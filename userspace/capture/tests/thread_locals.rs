//! Every way that compilers have to reach a thread-local, in imitations of an interpreter made by the C compiler at hand, and the
//! ways an interpreter can be embedded.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use pyobs_capture::cpython::find::{InspectError, Interpreter, TlsAccess, inspect};
use std::path::PathBuf;
use std::process::Command;

/// As little of 3.12 as is asked for.
const IMITATION: &str = r#"
__thread long padding = 1;
__thread void *_Py_tss_tstate VISIBILITY;
const unsigned long Py_Version = VERSION;
struct { long before[4]; int is_initialized; unsigned key; long after[8]; } _PyRuntime
    __attribute__((section(".PyRuntime"))) = { .key = 3 };
__attribute__((noipa)) void *PyThread_tss_get(void *key) { return key; }
void *PyGILState_GetThisThreadState(void) { return PyThread_tss_get(&_PyRuntime.is_initialized); }
void *PyThreadState_Get(void) { if (!_Py_tss_tstate) __builtin_trap(); return _Py_tss_tstate; }
void *_PyThreadState_UncheckedGet(void) { return _Py_tss_tstate; }
int _PyEval_EvalFrameDefault(int x) { return x ? padding : 0; }
int main(void) { return 0; }
"#;

fn build(name: &str, options: &[&str]) -> Option<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, output) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, IMITATION).unwrap();
    let defaults = ["-O2", "-w", "-DVERSION=0x030c01f0UL", "-DVISIBILITY="];
    let status = Command::new("cc").args(defaults).args(options).arg("-o").arg(&output).arg(&source).status();
    match status {
        Ok(status) if status.success() => Some(std::fs::read(output).unwrap()),
        other => {
            println!("skipped {name}: cc {options:?}: {other:?}");
            None
        }
    }
}

fn found(name: &str, options: &[&str]) -> Option<Interpreter> {
    let data = build(name, options)?;
    let interpreter = inspect(&data).unwrap().unwrap_or_else(|| panic!("{name}: none"));
    assert_eq!(interpreter.version.to_string(), "3.12.1", "{name}");
    let runtime = interpreter.runtime.clone().unwrap();
    assert_eq!(interpreter.thread_state.key.map(|key| key.key), Some(runtime.start + 36), "{name}");
    assert_eq!(interpreter.thread_state.key.unwrap().initialized, Some(runtime.start + 32), "{name}");
    Some(interpreter)
}

#[test]
fn each_way_to_a_thread_local_is_understood() {
    const HIDDEN: &str = "-DVISIBILITY=__attribute__((visibility(\"hidden\")))";
    type Expected = fn(&TlsAccess) -> bool;
    let dynamic: Expected = |access| matches!(access, TlsAccess::Dynamic { offset: 0 | 8, .. });
    let slot: Expected = |access| matches!(access, TlsAccess::GotSlot(_));
    let descriptor: Expected = |access| matches!(access, TlsAccess::Descriptor { .. });
    let direct: Expected = |access| matches!(access, TlsAccess::Offset(-16 | -8));
    let cases: [(&str, &[&str], Expected); 9] = [
        ("general-dynamic.so", &["-shared", "-fPIC"], dynamic),
        ("hidden-dynamic.so", &["-shared", "-fPIC", HIDDEN], dynamic),
        ("local-dynamic.so", &["-shared", "-fPIC", HIDDEN, "-ftls-model=local-dynamic", "-s"], dynamic),
        ("no-plt.so", &["-shared", "-fPIC", "-fno-plt", "-s"], dynamic),
        ("initial-exec.so", &["-shared", "-fPIC", "-ftls-model=initial-exec", "-s"], slot),
        ("descriptor.so", &["-shared", "-fPIC", "-mtls-dialect=gnu2", "-s"], descriptor),
        ("program", &["-rdynamic", "-s"], direct),
        ("fixed-program", &["-rdynamic", "-no-pie", "-fno-pie"], direct),
        ("unoptimised.so", &["-shared", "-fPIC", "-O0"], dynamic),
    ];
    for (name, options, expected) in cases {
        let Some(interpreter) = found(name, options) else { continue };
        let access = interpreter.thread_state.tls.unwrap_or_else(|| panic!("{name}: not understood"));
        println!("{name}: {access:x?}");
        assert!(expected(&access), "{name}: {access:x?}");
    }
}

#[test]
fn an_interpreter_that_exports_nothing_is_found_by_its_section() {
    let Some(interpreter) = found("embedded", &["-fvisibility=hidden"]) else { return };
    assert!(matches!(interpreter.thread_state.tls, Some(TlsAccess::Offset(_))));
    let Some(stripped) = build("embedded-stripped", &["-fvisibility=hidden", "-s"]) else { return };
    assert_eq!(inspect(&stripped), Ok(None));
}

#[test]
fn a_version_that_does_not_go_with_the_symbols_is_refused() {
    for (name, version) in
        [("says-3.6.so", "0x030600f0UL"), ("says-4.0.so", "0x040000f0UL"), ("says-2.7.so", "0x020712f0UL")]
    {
        let Some(data) = build(name, &["-shared", "-fPIC", "-UVERSION", &format!("-DVERSION={version}")]) else {
            return;
        };
        let error = inspect(&data).unwrap_err();
        println!("{name}: {error}");
        assert!(
            matches!(error, InspectError::Contradiction { .. } | InspectError::TooOld(_) | InspectError::NoLayout(_)),
            "{error:?}"
        );
    }
}
