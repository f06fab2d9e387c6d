//! Metrics of the process from the system, in the standard exporter names; its version, and the disk of its data.

use std::fmt::Write as _;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::metrics::Kind;
use crate::{Clock, SystemClock};

crate::metrics! {
    /// 1; the label has the version that runs. Unequal ones are an upgrade that is not complete.
    Gauge BUILD_INFO = "tidemark_build_info" [version];
    /// Time at which the process started.
    Gauge START_TIME = "process_start_time_seconds" [];
    /// Processor time that the process took.
    Counter CPU_SECONDS = "process_cpu_seconds_total" [];
    /// Memory of the process that is in use.
    Gauge RESIDENT_MEMORY = "process_resident_memory_bytes" [];
    /// Address space of the process.
    Gauge VIRTUAL_MEMORY = "process_virtual_memory_bytes" [];
    /// Files and sockets that are open.
    Gauge OPEN_FILES = "process_open_fds" [];
    /// Files and sockets that may be open.
    Gauge MAX_FILES = "process_max_fds" [];
    /// Bytes that are free on the disk of `data.dir`; absent where log and tables are elsewhere.
    Gauge DATA_FREE = "tidemark_runtime_data_free_bytes" [];
}

/// Reads the system's data about the process at each scrape.
#[derive(Debug, Clone)]
pub struct Process {
    version: &'static str,
    started: i64,
    data: Option<PathBuf>,
}

impl Process {
    /// Describes this process, which starts now. `data` is the folder of its files, if it has any.
    #[must_use]
    pub fn starting(version: &'static str, data: Option<PathBuf>) -> Self {
        Self { version, started: SystemClock.now().seconds().0, data }
    }

    /// All metrics of the process in Prometheus' text format. Unavailable values are left out.
    #[must_use]
    pub fn exposition(&self) -> String {
        let mut text = String::new();
        for metric in METRICS {
            let Some(value) = self.value(metric.name) else { continue };
            let value = if metric.name == BUILD_INFO {
                format!("{{version=\"{value}\"}} 1")
            } else {
                format!(" {value}")
            };
            let kind = if metric.kind == Kind::Counter { "counter" } else { "gauge" };
            let (name, meaning) = (metric.name, metric.meaning.trim());
            // Writing to a string does not fail.
            let _ =
                writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n{name}{value}\n");
        }
        text
    }

    fn value(&self, name: &str) -> Option<String> {
        match name {
            BUILD_INFO => Some(self.version.to_owned()),
            START_TIME => Some(self.started.to_string()),
            CPU_SECONDS => {
                let time = clock_gettime(ClockId::ProcessCPUTime);
                Some(format!("{}.{:09}", time.tv_sec, time.tv_nsec))
            }
            RESIDENT_MEMORY => memory("VmRSS:"),
            VIRTUAL_MEMORY => memory("VmSize:"),
            OPEN_FILES => Some(std::fs::read_dir("/proc/self/fd").ok()?.count().to_string()),
            MAX_FILES => getrlimit(Resource::Nofile).current.map(|limit| limit.to_string()),
            DATA_FREE => {
                let disk = rustix::fs::statvfs(self.data.as_ref()?).ok()?;
                Some(disk.f_bavail.saturating_mul(disk.f_frsize).to_string())
            }
            _ => None,
        }
    }
}

/// Value of a line of `/proc/self/status`, in bytes.
fn memory(key: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes.saturating_mul(1024).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
    }

    #[test]
    fn a_process_shows_what_it_takes() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::starting("1.2.3", Some(dir.path().to_owned()));
        let before = process.exposition();
        assert!(before.contains("\ntidemark_build_info{version=\"1.2.3\"} 1\n"), "{before}");
        for metric in METRICS.iter().filter(|metric| metric.name != BUILD_INFO) {
            assert!(value(&before, metric.name) > 0.0, "{} in {before}", metric.name);
        }
        let files: Vec<_> = (0..9).map(|_| std::fs::File::open(dir.path()).unwrap()).collect();
        while value(&process.exposition(), CPU_SECONDS) < value(&before, CPU_SECONDS) + 0.01 {}
        assert!(value(&process.exposition(), OPEN_FILES) >= 10.0);
        assert_eq!(value(&process.exposition(), START_TIME), value(&before, START_TIME));
        drop(files);
    }

    #[test]
    fn without_a_folder_no_disk_is_shown() {
        assert!(!Process::starting("1.2.3", None).exposition().contains(DATA_FREE));
    }
}
