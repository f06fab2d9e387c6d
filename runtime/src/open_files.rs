//! Limit on the files and sockets that the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum limit that is requested: enough for every limit of the configuration. Some systems allow
/// any number, at a cost for each.
const WANTED: u64 = 1 << 20;

/// Raises the limit as far as the system lets this process, at most to `WANTED`. Returns the limit,
/// or none if unlimited.
///
/// Shells and service managers start processes with 1024 or so, and let them raise that.
#[must_use]
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let allowed = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if let Some(limit) = current.filter(|current| *current < allowed) {
        let raised = Rlimit { current: Some(allowed), maximum };
        return Some(setrlimit(Resource::Nofile, raised).map_or(limit, |()| allowed));
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_is_raised_to_what_is_allowed() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let low = current.map_or(256, |current| current.min(256));
        setrlimit(Resource::Nofile, Rlimit { current: Some(low), maximum }).unwrap();
        let raised = raise_limit();
        assert_eq!(raised, Some(maximum.map_or(WANTED, |maximum| maximum.min(WANTED))));
        assert_eq!(getrlimit(Resource::Nofile).current, raised);
        assert_eq!(raise_limit(), raised, "again, it stays");
    }
}
