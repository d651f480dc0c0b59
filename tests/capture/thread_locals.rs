//! Tests every way in which compilers access a thread-local variable, in imitations of an interpreter built with the C
//! compiler at hand, and the ways to embed an interpreter.

use std::process::Command;

use pyobs_capture::cpython::find::{InspectError, Interpreter, inspect};
use pyobs_capture::cpython::thread_local::TlsAccess;
use pyobs_tests::{Case, Folder, case, needs};

/// The parts of 3.12 that pyobs looks for.
const IMITATION: &str = r#"
__thread long padding = 1;
__thread void *_Py_tss_tstate VISIBILITY;
const unsigned long Py_Version = VERSION;
struct state { int check_enabled; void *interpreter, *other; int is_initialized; unsigned key; };
struct { long before; struct state gilstate; long after[8]; } _PyRuntime
    __attribute__((section(".PyRuntime"))) = { .gilstate.key = 3 };
__attribute__((noipa)) void *PyThread_tss_get(void *key) { return key; }
/* A debug build does not inline it. */
static INLINE void *this_thread_state(struct state *state) {
    return state->interpreter ? PyThread_tss_get(&state->is_initialized) : 0;
}
void *PyGILState_GetThisThreadState(void) { return this_thread_state(&_PyRuntime.gilstate); }
void *PyThreadState_Get(void) { if (!_Py_tss_tstate) __builtin_trap(); return _Py_tss_tstate; }
void *_PyThreadState_UncheckedGet(void) { return _Py_tss_tstate; }
int _PyEval_EvalFrameDefault(int x) { return x ? padding : 0; }
int main(void) { return 0; }
"#;

/// A name, the compiler's options, and whether the access is the expected one.
type Way = (&'static str, &'static [&'static str], fn(&TlsAccess) -> bool);

const HIDDEN: &str = "-DVISIBILITY=__attribute__((visibility(\"hidden\")))";
const NOT_INLINED: &str = "-DINLINE=__attribute__((noinline))";
const WAYS: [Way; 11] = [
    ("general-dynamic.so", &["-shared", "-fPIC"], is_dynamic),
    ("hidden-dynamic.so", &["-shared", "-fPIC", HIDDEN], is_dynamic),
    ("local-dynamic.so", &["-shared", "-fPIC", HIDDEN, "-ftls-model=local-dynamic", "-s"], is_dynamic),
    ("no-plt.so", &["-shared", "-fPIC", "-fno-plt", "-s"], is_dynamic),
    ("initial-exec.so", &["-shared", "-fPIC", "-ftls-model=initial-exec", "-s"], is_slot),
    ("descriptor.so", &["-shared", "-fPIC", "-mtls-dialect=gnu2", "-s"], is_descriptor),
    ("program", &["-rdynamic", "-s"], is_direct),
    ("fixed-program", &["-rdynamic", "-no-pie", "-fno-pie"], is_direct),
    ("unoptimised.so", &["-shared", "-fPIC", "-O0"], is_dynamic),
    ("debug.so", &["-shared", "-fPIC", "-Og", NOT_INLINED], is_dynamic),
    ("fixed-debug-program", &["-rdynamic", "-no-pie", "-fno-pie", "-Og", NOT_INLINED], is_direct),
];
const EMBEDDED: &[&str] = &["-fvisibility=hidden"];
const SHARED: &[&str] = &["-shared", "-fPIC"];

fn is_dynamic(access: &TlsAccess) -> bool {
    matches!(access, TlsAccess::Dynamic { offset: 0 | 8, .. })
}

fn is_slot(access: &TlsAccess) -> bool {
    matches!(access, TlsAccess::GotSlot(_))
}

fn is_descriptor(access: &TlsAccess) -> bool {
    matches!(access, TlsAccess::Descriptor { .. })
}

fn is_direct(access: &TlsAccess) -> bool {
    matches!(access, TlsAccess::Offset(-16 | -8))
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = WAYS.into_iter().map(is_understood).collect();
    cases.extend([
        case("thread_locals/an_interpreter_that_exports_nothing_is_found_by_its_section", embedded)
            .needs(needs::compiler(EMBEDDED)),
        case("thread_locals/a_version_that_contradicts_the_symbols_is_refused", contradictions)
            .needs(needs::compiler(SHARED)),
    ]);
    cases
}

fn build(name: &str, options: &[&str]) -> Vec<u8> {
    let folder = Folder::new();
    let (source, output) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, IMITATION).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-w", "-DVERSION=0x030c01f0UL", "-DVISIBILITY=", "-DINLINE=inline __attribute__((always_inline))"]);
    cc.args(options);
    let made = cc.arg("-o").arg(&output).arg(&source).output().unwrap();
    assert!(made.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&made.stderr));
    std::fs::read(output).unwrap()
}

fn found(name: &str, options: &[&str]) -> Interpreter {
    let interpreter = inspect(&build(name, options)).unwrap().unwrap_or_else(|| panic!("{name}: none"));
    assert_eq!(interpreter.version.to_string(), "3.12.1", "{name}");
    let runtime = interpreter.runtime.clone().unwrap();
    assert_eq!(interpreter.thread_state.key.map(|key| key.key), Some(runtime.start + 36), "{name}");
    assert_eq!(interpreter.thread_state.key.unwrap().initialized, Some(runtime.start + 32), "{name}");
    interpreter
}

fn is_understood((name, options, is_expected): Way) -> Case {
    let body = move || {
        let access = found(name, options).thread_state.tls.expect("the access is not recognised");
        assert!(is_expected(&access), "{access:x?}");
    };
    case(format!("thread_locals/{name}::the_access_is_recognised"), body).needs(needs::compiler(options))
}

fn embedded() {
    let interpreter = found("embedded", EMBEDDED);
    assert!(matches!(interpreter.thread_state.tls, Some(TlsAccess::Offset(_))));
    let stripped = build("embedded-stripped", &[EMBEDDED, &["-s"]].concat());
    assert_eq!(inspect(&stripped), Ok(None));
}

fn contradictions() {
    for (name, version) in
        [("says-3.6.so", "0x030600f0UL"), ("says-4.0.so", "0x040000f0UL"), ("says-2.7.so", "0x020712f0UL")]
    {
        let version = format!("-DVERSION={version}");
        let error = inspect(&build(name, &[SHARED, &["-UVERSION", &version]].concat())).unwrap_err();
        assert!(
            matches!(error, InspectError::Contradiction { .. } | InspectError::TooOld(_) | InspectError::NoLayout(_)),
            "{name}: {error:?}"
        );
    }
}
