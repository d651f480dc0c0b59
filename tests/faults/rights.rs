//! Tests a machine or a user that lacks something: exit code 3 and one sentence.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::{fs, io};

use pyobs_tests::{Case, Folder, case, command, needs, workload};

use crate::python;
use crate::verb::{Outcome, pyobs, run};

const NOBODY: u32 = 65534;

pub fn cases() -> Vec<Case> {
    let unshare = || needs::program("unshare");
    vec![
        case("rights/a_user_without_rights_learns_what_is_needed", || {
            let folder = Folder::new();
            let mut record = Command::new(for_everybody(&folder));
            record.args(["record", "-o"]).arg(folder.join("a.pyobs")).uid(NOBODY).gid(NOBODY);
            let outcome = run(record);
            let sentence = outcome.fails_with(3);
            assert!(sentence.contains("root") && sentence.contains("CAP_"), "{sentence}");
            assert!(!folder.join("a.pyobs").exists());
        })
        .needs(needs::root()),
        case("rights/doctor_without_rights_ends_with_3_and_a_list", || {
            let folder = Folder::new();
            let mut doctor = Command::new(for_everybody(&folder));
            doctor.arg("doctor").uid(NOBODY).gid(NOBODY);
            let outcome = run(doctor);
            outcome.fails_with(3);
            assert!(outcome.text().contains("missing"), "{outcome:?}");
        })
        .needs(needs::root()),
        case("rights/root_without_capabilities_learns_what_is_needed", || {
            let folder = Folder::new();
            let mut record = command("setpriv");
            record.args(["--inh-caps=-all", "--bounding-set=-all"]).arg(pyobs_tests::pyobs());
            record.args(["record", "--duration", "1", "-o"]).arg(folder.join("a.pyobs"));
            run(record).fails_with(3);
        })
        .needs(needs::root())
        .needs(needs::program("setpriv")),
        case("rights/a_user_with_some_rights_gets_one_sentence_or_a_recording", || {
            let folder = Folder::new();
            let pyobs = for_everybody(&folder);
            fs::set_permissions(&*folder, fs::Permissions::from_mode(0o777)).unwrap();
            let mut record = command("setpriv");
            record.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            record.args(["--inh-caps=-all,+bpf,+perfmon", "--ambient-caps=-all,+bpf,+perfmon"]);
            record.arg(pyobs).args(["record", "--duration", "1", "-o"]).arg(folder.join("a.pyobs"));
            let outcome = run(record);
            outcome.succeeds_or_fails_with(3);
        })
        .needs(needs::root())
        .needs(needs::program("setpriv")),
        case("rights/a_kernel_without_btf_is_named", || {
            for hide in ["mount --bind \"$2/spoilt\" /sys/kernel/btf/vmlinux", "mount -t tmpfs none /sys/kernel/btf"] {
                let folder = Folder::new();
                fs::write(folder.join("spoilt"), "").unwrap();
                let outcome = record_behind(&folder, hide);
                let sentence = outcome.fails_with(3);
                assert!(sentence.contains("type information") || sentence.contains("BTF"), "{sentence}");
            }
        })
        .needs(needs::root())
        .needs(unshare()),
        case("rights/garbage_in_btf_is_named", || {
            let whole = fs::read("/sys/kernel/btf/vmlinux").unwrap();
            let mut twisted = whole.clone();
            for (place, byte) in twisted.iter_mut().enumerate().skip(24).step_by(4099) {
                *byte ^= u8::try_from(place % 255).unwrap() | 1;
            }
            let spoilt = [b"not BTF at all".to_vec(), vec![0xff; 4096], whole[..whole.len() / 2].to_vec(), twisted];
            for bytes in spoilt {
                let folder = Folder::new();
                fs::write(folder.join("spoilt"), &bytes).unwrap();
                let outcome = record_behind(&folder, "mount --bind \"$2/spoilt\" /sys/kernel/btf/vmlinux");
                // Garbage far from what pyobs looks up does no harm.
                outcome.succeeds_or_fails_with(3);
            }
        })
        .needs(needs::root())
        .needs(unshare())
        .needs(fs::read("/sys/kernel/btf/vmlinux").map_err(|error| format!("this kernel has no BTF: {error}"))),
        case("rights/a_kernel_without_a_feature_is_named", || {
            for (call, name) in [(libc::SYS_bpf, "bpf"), (libc::SYS_perf_event_open, "perf_event_open")] {
                for error in [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EINVAL] {
                    let folder = Folder::new();
                    let mut record = pyobs(["record", "--duration", "1", "-o"]);
                    record.arg(folder.join("a.pyobs"));
                    refuse(&mut record, call, error);
                    let outcome = run(record);
                    let shown = io::Error::from_raw_os_error(error);
                    assert_eq!(outcome.code(), Some(3), "{name} refused with {shown}: {outcome:#?}");
                    outcome.fails_with(3);
                    assert!(!folder.join("a.pyobs").exists(), "{name} refused with {shown}: a file remains");
                }
            }
        })
        .needs(needs::root())
        .needs(x86_64()),
        case("rights/in_a_pid_namespace_processes_are_seen_or_a_reason_is_given", || {
            let folder = Folder::new();
            let mut shell = command("unshare");
            shell.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
            shell.arg(pyobs_tests::pyobs()).args(["record", "-o"]).arg(folder.join("a.pyobs")).arg("--");
            let mut spin = python().unwrap().script(workload("fault_spin.py"));
            spin.arg("2");
            shell.arg(spin.get_program()).args(spin.get_args());
            let outcome = run(shell);
            if outcome.code() != Some(0) {
                outcome.fails_with(3);
                return;
            }
            outcome.is_calm();
            let report = run(pyobs(["report".as_ref(), folder.join("a.pyobs").as_os_str()]));
            assert!(
                report.succeeds().text().contains("hot_function"),
                "nothing was sampled, and no reason was given: {report:#?}"
            );
        })
        .needs(needs::root())
        .needs(python())
        .needs(unshare()),
        case("rights/doctor_survives_refused_system_calls", || {
            for call in [libc::SYS_bpf, libc::SYS_perf_event_open] {
                let mut doctor = pyobs(["doctor"]);
                refuse(&mut doctor, call, libc::EPERM);
                run(doctor).fails_with(3);
            }
        })
        .needs(needs::root())
        .needs(x86_64()),
    ]
}

fn x86_64() -> Result<(), String> {
    if cfg!(target_arch = "x86_64") {
        Ok(())
    } else {
        Err("the filter's system call numbers are for x86-64".to_owned())
    }
}

/// Copies pyobs into a folder that any user can enter.
pub fn for_everybody(folder: &Folder) -> PathBuf {
    let copy = folder.join("pyobs");
    fs::copy(pyobs_tests::pyobs(), &copy).unwrap();
    for path in [copy.as_path(), folder] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

/// Runs `pyobs record` in a mount namespace of its own, after the command `hide`, in which `$2` is the folder.
fn record_behind(folder: &Folder, hide: &str) -> Outcome {
    let mut shell = command("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-ec"]);
    shell.arg(format!("{hide}; exec \"$1\" record --duration 1 -o \"$2/a.pyobs\""));
    shell.args(["sh".as_ref(), pyobs_tests::pyobs().as_os_str(), folder.as_os_str()]);
    run(shell)
}

/// Makes one system call of the command fail, by a seccomp filter.
fn refuse(command: &mut Command, call: libc::c_long, error: libc::c_int) {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const SKIP_UNLESS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    let filter = [
        step(LOAD_NUMBER, 0, 0),
        step(SKIP_UNLESS, u32::try_from(call).unwrap(), 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | error.unsigned_abs(), 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let set = move || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the filter has as many steps as the program says, and the kernel copies it during the call.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe, and nothing is allocated.
    unsafe { command.pre_exec(set) };
}
