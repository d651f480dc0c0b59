//! One guest: started by QEMU, observed through its two serial ports, and stopped at its time limit.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{process::progress, repo};

/// How long a guest may take for its boot or for one family. An emulated one takes up to 100 s for a family.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a guest may take in all.
const PATIENCE_TOTAL: Duration = Duration::from_secs(1200);
/// With KVM a guest boots in three seconds, or hangs if this machine is itself a guest without nested virtualisation.
const KVM_PATIENCE: Duration = Duration::from_secs(12);
/// How often a guest is restarted because of faulty emulation.
const BOOTS_MAX: u32 = 3;
/// A kernel patches its own code behind breakpoints while it boots and while tracepoints are attached. QEMU's emulation
/// of several processors sometimes runs such a breakpoint after it was removed, which the kernel then does not
/// recognise.
const HALF_PATCHED: &str = "Oops: int3";
/// The first line that tests/kernels/guest/init prints.
const BOOTED: &str = "pyobs-booted";
const KERNEL: &str = "console=ttyS0 panic=-1 quiet mitigations=off root=/dev/nvme0n1 rw init=/init";

/// KVM until it has failed once, then emulation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    pub(super) fn first() -> Self {
        let kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        if kvm.is_ok() { Self::Kvm } else { Self::Tcg }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    fn options(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// The results of a guest.
pub(super) struct Ran {
    pub(super) accelerator: Accelerator,
    pub(super) seconds: f64,
    /// One line of the second port each.
    pub(super) checks: Vec<Value>,
}

pub(super) fn run(image: &Path, disk: &Path, console: &Path, accelerator: &mut Accelerator) -> Result<Ran> {
    if *accelerator == Accelerator::Kvm {
        let mut guest = Guest::start(image, disk, console, Accelerator::Kvm)?;
        if guest.boots(KVM_PATIENCE)? {
            return guest.finish();
        }
        progress("KVM does not boot a guest here, so QEMU emulates it");
        *accelerator = Accelerator::Tcg;
    }
    for _ in 1..BOOTS_MAX {
        let ran = Guest::start(image, disk, console, Accelerator::Tcg)?.finish();
        if !read(console).contains(HALF_PATCHED) {
            return ran;
        }
        progress("QEMU ran code that the kernel had half patched, so the guest is booted again");
    }
    Guest::start(image, disk, console, Accelerator::Tcg)?.finish()
}

struct Guest<'a> {
    qemu: Child,
    console: &'a Path,
    checks: PathBuf,
    accelerator: Accelerator,
    since: Instant,
}

impl<'a> Guest<'a> {
    fn start(image: &Path, disk: &Path, console: &'a Path, accelerator: Accelerator) -> Result<Self> {
        let checks = console.with_extension("checks");
        for file in [console, &checks] {
            fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
        }
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(accelerator.options());
        qemu.args(["-machine", "q35", "-smp", "2", "-m", "3072", "-no-reboot", "-nic", "none"]);
        qemu.args(["-display", "none", "-monitor", "none"]);
        // The kernel's messages go to the first port, so that they do not split a line of the checks.
        for port in [console, &checks] {
            qemu.args(["-serial", &format!("file:{}", port.display())]);
        }
        qemu.args(["-append", KERNEL, "-kernel"]).arg(image);
        qemu.args(["-drive", &format!("file={},format=raw,if=none,id=root,snapshot=on", disk.display())]);
        qemu.args(["-device", "nvme,drive=root,serial=1"]);
        let words = fs::File::create(console.with_extension("qemu")).context("cannot write QEMU's output")?;
        let qemu = qemu.stdin(Stdio::null()).stderr(words).spawn().context("qemu-system-x86_64 does not run")?;
        Ok(Self { qemu, console, checks, accelerator, since: Instant::now() })
    }

    fn boots(&mut self, patience: Duration) -> Result<bool> {
        while self.since.elapsed() < patience && self.qemu.try_wait()?.is_none() {
            if self.has_booted() {
                return Ok(true);
            }
            sleep(Duration::from_millis(200));
        }
        Ok(self.has_booted())
    }

    fn has_booted(&self) -> bool {
        read(self.console).contains(BOOTED)
    }

    fn finish(mut self) -> Result<Ran> {
        let mut printed = 0;
        let mut printed_at = Instant::now();
        while self.qemu.try_wait()?.is_none() {
            let checks = self.checks()?;
            for check in checks.iter().skip(printed) {
                progress(line(check));
            }
            if checks.len() > printed {
                printed_at = Instant::now();
            }
            printed = checks.len();
            if printed_at.elapsed() > PATIENCE || self.since.elapsed() > PATIENCE_TOTAL {
                let seconds = self.since.elapsed().as_secs();
                bail!("the guest did not end in {seconds} s; see {}", shown(self.console));
            }
            sleep(Duration::from_millis(500));
        }
        if !self.has_booted() {
            bail!("the kernel did not start its first process; see {}", shown(self.console));
        }
        let mut checks = self.checks()?;
        if checks.pop().is_none_or(|last| last.get("family") != Some(&"all".into())) {
            bail!("the guest ended before its checks did; see {}", shown(self.console));
        }
        Ok(Ran { accelerator: self.accelerator, seconds: self.since.elapsed().as_secs_f64(), checks })
    }

    /// The complete lines so far.
    fn checks(&self) -> Result<Vec<Value>> {
        let text = fs::read(&self.checks).with_context(|| format!("cannot read {}", self.checks.display()))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).with_context(|| format!("the guest printed {line:?}"))).collect()
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn read(console: &Path) -> String {
    String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned()
}

/// A file's path in the checkout, for messages.
fn shown(file: &Path) -> String {
    file.strip_prefix(repo::root()).unwrap_or(file).display().to_string()
}

fn line(check: &Value) -> String {
    let text = |key: &str| check.get(key).and_then(Value::as_str).unwrap_or_default();
    let detail = text("detail").lines().next_back().unwrap_or_default();
    format!("  {:10} {:40} {:8} {detail}", text("family"), text("check"), text("status")).trim_end().to_owned()
}
