//! The resolver of the HTTP client: a name is resolved and its addresses are checked in one step, so no second
//! resolution can return another address. Addresses written into a URL never reach a resolver and are judged
//! with the URL ([`ReceiverPolicy::check`]).

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use schemas::{ReceiverPolicy, Refusal};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use url::Url;

/// Maximum number of simultaneous look-ups.
const LOOKUPS_MAX: usize = 16;
/// Time for which an answer is used without a new look-up; the system does not return the TTL.
const FRESH_FOR: Duration = Duration::from_secs(30);
/// Maximum age of an answer that is used during a new look-up, so that attempts do not wait for look-ups of dead name
/// servers.
const USED_FOR: Duration = Duration::from_secs(300);
/// Maximum number of remembered names.
const NAMES_MAX: usize = 4096;
/// Maximum age of an answer for another name that proves our name servers work. While there is one, an unanswered
/// look-up is blamed on the name's own servers.
const WORKING_FOR: Duration = Duration::from_secs(60);

/// [`host_of`] of a URL in text form; empty if the text is not a URL.
pub(crate) fn host_key(text: &str) -> String {
    Url::parse(text).map_or_else(|_| String::new(), |url| host_of(&url))
}

/// Key by which requests are counted: host and port.
pub(crate) fn host_of(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

/// Resolves names and refuses a name as a whole if one of its addresses may not be called.
///
/// The system's resolver blocks a thread until name servers answer, which may take longer than any attempt waits. So
/// attempts share one look-up per name, and at most [`LOOKUPS_MAX`] run at once: dead name servers leave threads to the
/// rest of the process.
pub(crate) struct GuardedResolver {
    receivers: ReceiverPolicy,
    lookup: Lookup,
    pub(crate) fresh_for: Duration,
    /// Maximum time that an attempt waits for a look-up.
    patience: Duration,
    threads: Arc<Semaphore>,
    names: Names,
}

/// Resolves a name; blocks.
type Lookup = Arc<dyn Fn(&str) -> Found + Send + Sync>;
type Found = Result<Vec<SocketAddr>, NotResolved>;
type Names = Arc<Mutex<HashMap<String, Entry>>>;

enum Entry {
    /// A look-up waits or is in flight; the old addresses, if any, are used meanwhile for up to [`USED_FOR`].
    Asked(watch::Receiver<Progress>, Option<Known>),
    Known(Known),
}

#[derive(Debug)]
enum Progress {
    /// Waits until fewer than [`LOOKUPS_MAX`] look-ups run.
    Waiting,
    Begun,
    Ended(Found),
}

#[derive(Debug, Clone)]
struct Known {
    at: Instant,
    addresses: Vec<SocketAddr>,
}

/// Reason why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotResolved {
    /// Name servers know no address.
    #[error("{0}")]
    Unknown(String),
    /// The look-up timed out or failed without a definite answer.
    #[error("{0}")]
    Unanswered(String),
    /// A failure on our side.
    #[error("{0}")]
    Local(String),
}

impl GuardedResolver {
    /// Uses the system's resolver.
    pub(crate) fn new(receivers: ReceiverPolicy, patience: Duration) -> Self {
        Self::asking(receivers, patience, Arc::new(ask_system))
    }

    pub(crate) fn asking(receivers: ReceiverPolicy, patience: Duration, lookup: Lookup) -> Self {
        let (threads, names) = (Arc::new(Semaphore::new(LOOKUPS_MAX)), Names::default());
        Self { receivers, lookup, fresh_for: FRESH_FOR, patience, threads, names }
    }

    /// Returns the known addresses of a name, or its look-up. Begins one if the addresses are not fresh.
    fn ask(&self, name: &str) -> Result<Vec<SocketAddr>, watch::Receiver<Progress>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |known: &Known| known.at.elapsed() < USED_FOR;
        let known = match names.get(name) {
            Some(Entry::Known(known)) if known.at.elapsed() < self.fresh_for => {
                return Ok(known.addresses.clone());
            }
            Some(Entry::Asked(answer, known)) => {
                let known = known.clone().filter(usable);
                return known.map(|known| known.addresses).ok_or_else(|| answer.clone());
            }
            Some(Entry::Known(known)) => Some(known.clone()).filter(usable),
            None => None,
        };
        if names.len() >= NAMES_MAX {
            names.retain(|_, entry| matches!(entry, Entry::Asked(..)));
        }
        let (sender, answer) = watch::channel(Progress::Waiting);
        names.insert(name.to_owned(), Entry::Asked(answer.clone(), known.clone()));
        self.look_up(name, known.clone(), sender);
        known.map(|known| known.addresses).ok_or(answer)
    }

    /// Resolves a name in a detached task: the attempts that wait for it may time out.
    fn look_up(&self, name: &str, old: Option<Known>, sender: watch::Sender<Progress>) {
        let (name, lookup) = (name.to_owned(), self.lookup.clone());
        let (threads, known) = (self.threads.clone(), self.names.clone());
        drop(tokio::spawn(async move {
            let thread = threads.acquire_owned().await;
            {
                let mut names = known.lock().unwrap_or_else(PoisonError::into_inner);
                // The entry holds one receiver. If it is the only one, no attempt waits, so no thread is used.
                if old.is_none() && sender.receiver_count() <= 1 {
                    names.remove(&name);
                    return;
                }
            }
            sender.send_replace(Progress::Begun);
            let asked = name.clone();
            let found = tokio::task::spawn_blocking(move || {
                let found = lookup(&asked);
                drop(thread);
                found
            });
            let found =
                found.await.unwrap_or_else(|error| Err(NotResolved::Local(error.to_string())));
            let mut names = known.lock().unwrap_or_else(PoisonError::into_inner);
            let new =
                |addresses: &Vec<_>| Known { at: Instant::now(), addresses: addresses.clone() };
            match found.as_ref().map_or(old, |addresses| Some(new(addresses))) {
                Some(known) => names.insert(name, Entry::Known(known)),
                None => names.remove(&name),
            };
            sender.send_replace(Progress::Ended(found));
        }));
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (asked, receivers) = (self.ask(name.as_str()), self.receivers.clone());
        let (patience, names) = (self.patience, self.names.clone());
        Box::pin(async move {
            let found = match asked {
                Ok(found) => found,
                Err(answer) => {
                    let found = wait(answer, patience).await;
                    found.map_err(|error| judge(error, name.as_str(), &names))?
                }
            };
            let permitted = permit(found, &receivers)?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

async fn wait(mut answer: watch::Receiver<Progress>, patience: Duration) -> Found {
    let is_ended = |progress: &Progress| matches!(progress, Progress::Ended(_));
    let waited = timeout(patience, answer.wait_for(is_ended)).await.map(|_| ());
    match (&*answer.borrow(), waited) {
        (Progress::Ended(found), _) => found.clone(),
        (Progress::Begun, Err(late)) => {
            Err(NotResolved::Unanswered(format!("name servers did not answer: {late}")))
        }
        (Progress::Waiting, Err(_)) => {
            Err(NotResolved::Local("name servers did not answer for other names".to_owned()))
        }
        (_, Ok(())) => Err(NotResolved::Local("the look-up broke off".to_owned())),
    }
}

/// Blames a missing answer on our name servers, unless they lately found another name.
fn judge(error: NotResolved, name: &str, names: &Names) -> NotResolved {
    let NotResolved::Unanswered(cause) = error else { return error };
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let at = |entry: &Entry| match entry {
        Entry::Known(known) | Entry::Asked(_, Some(known)) => Some(known.at),
        Entry::Asked(_, None) => None,
    };
    let others = names.iter().filter(|(other, _)| *other != name);
    if others.filter_map(|(_, entry)| at(entry)).any(|at| at.elapsed() < WORKING_FOR) {
        NotResolved::Unanswered(cause)
    } else {
        NotResolved::Local(cause)
    }
}

fn ask_system(name: &str) -> Found {
    use LookupErrorKind::{
        Again, Badflags, Fail, Family, IO, Memory, NoData, NoName, Service, Socktype, System,
        Unknown,
    };
    let streams = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let found = dns_lookup::getaddrinfo(Some(name), None, Some(streams)).map_err(|error| {
        let kind = error.kind();
        let cause = std::io::Error::from(error).to_string();
        match kind {
            NoName | NoData => match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) {
                Ok(_) => NotResolved::Unknown(cause),
                // The system also reports this if it cannot send a query.
                Err(error) => NotResolved::Local(format!("{cause}: {error}")),
            },
            IO | Memory | System => NotResolved::Local(cause),
            Again | Badflags | Fail | Family | Service | Socktype | Unknown => {
                NotResolved::Unanswered(cause)
            }
        }
    })?;
    Ok(with_route(found.filter_map(|info| Some(info.ok()?.sockaddr)).collect()))
}

/// Drops addresses without a route if others are left: a host without IPv6 must not hide the failures of reachable
/// addresses.
fn with_route(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (near, far): (Vec<_>, Vec<_>) = addresses.into_iter().partition(has_route);
    if near.is_empty() { far } else { near }
}

/// `true` if the system has a route to an address. Connecting a UDP socket sends nothing.
fn has_route(address: &SocketAddr) -> bool {
    let own = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    UdpSocket::bind(own).and_then(|socket| socket.connect((address.ip(), 9))).is_ok()
}

/// The addresses of a name, unless one of them may not be called.
fn permit(found: Vec<SocketAddr>, receivers: &ReceiverPolicy) -> Result<Vec<SocketAddr>, Refusal> {
    match found.iter().map(SocketAddr::ip).find(|ip| !receivers.permits(*ip)) {
        Some(address) => Err(Refusal::Address(address)),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use testkit::eventually;

    use super::*;

    #[test]
    fn one_forbidden_address_refuses_the_name() {
        let of =
            |ips: &[[u8; 4]]| -> Vec<SocketAddr> { ips.iter().map(|ip| (*ip, 0).into()).collect() };
        let (public, own) = ([1, 1, 1, 1], [10, 0, 0, 1]);
        let internet = ReceiverPolicy::default();
        let refused = Err(Refusal::Address(own.into()));
        assert_eq!(permit(of(&[public, public]), &internet), Ok(of(&[public, public])));
        for found in [of(&[own]), of(&[own, public]), of(&[public, own])] {
            assert_eq!(permit(found.clone(), &internet), refused);
            assert_eq!(permit(found.clone(), &ReceiverPolicy::anywhere()), Ok(found));
        }
    }

    /// Azure's virtual machines get secrets from this address, although it is in a public range.
    #[test]
    fn address_of_azures_machines_is_special() {
        let machine = Ipv4Addr::new(168, 63, 129, 16);
        let network = schemas::parse_network("168.63.129.16/32").unwrap();
        let allowed = ReceiverPolicy::new(Vec::new(), vec![network]);
        for (last, by_default) in [(15, true), (16, false), (17, true)] {
            let found = vec![SocketAddr::from(([168, 63, 129, last], 443))];
            let permitted = permit(found.clone(), &ReceiverPolicy::default());
            assert_eq!(permitted.is_ok(), by_default, "{last}");
            assert!(permit(found, &allowed).is_ok(), "{last}");
        }
        let refused = ReceiverPolicy::default().check("http://168.63.129.16/machine");
        assert_eq!(refused, Err(Refusal::Address(machine.into())));
    }

    /// Resolver whose look-ups block until released, the release, and the number of look-ups begun.
    fn waiting() -> (GuardedResolver, std::sync::mpsc::Sender<()>, Arc<AtomicUsize>) {
        let begun = Arc::new(AtomicUsize::new(0));
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (gate, count) = (Mutex::new(gate), begun.clone());
        let lookup = move |name: &str| {
            count.fetch_add(1, Ordering::SeqCst);
            // Fails once the sender is dropped.
            let _ = gate.lock().unwrap().recv();
            if name.starts_with("no") {
                Err(NotResolved::Unknown("no such name".to_owned()))
            } else {
                Ok(vec![ADDRESS])
            }
        };
        (asking(lookup), go, begun)
    }

    fn asking(lookup: impl Fn(&str) -> Found + Send + Sync + 'static) -> GuardedResolver {
        let patience = Duration::from_secs(60);
        GuardedResolver::asking(ReceiverPolicy::default(), patience, Arc::new(lookup))
    }

    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)), 0);

    async fn resolve(resolver: &GuardedResolver, name: &str) -> Result<Vec<SocketAddr>, String> {
        let found = resolver.resolve(name.parse().unwrap()).await;
        found.map(Iterator::collect).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn one_look_up_serves_all_who_ask() {
        let (resolver, go, begun) = waiting();
        let name = "shop.example";
        let asked = [resolver.ask(name), resolver.ask(name), resolver.ask(name)];
        assert!(asked.iter().all(Result::is_err), "nothing is known yet");
        go.send(()).unwrap();
        assert_eq!(resolve(&resolver, name).await, Ok(vec![ADDRESS]));
        assert_eq!(resolver.ask(name).ok(), Some(vec![ADDRESS]));
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        // Failures are not cached: each query begins a new look-up.
        for _ in 0..2 {
            go.send(()).unwrap();
            assert_eq!(resolve(&resolver, "no.example").await, Err("no such name".to_owned()));
        }
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }

    async fn begin(begun: &AtomicUsize, count: usize) {
        let have = async || (begun.load(Ordering::SeqCst) >= count).then_some(());
        eventually("names that are asked for", have).await;
    }

    #[tokio::test]
    async fn dead_name_servers_take_few_threads_and_no_turns() {
        let (resolver, go, begun) = waiting();
        let resolver = Arc::new(resolver);
        let ask = |name: usize| {
            let resolver = resolver.clone();
            tokio::spawn(async move { resolve(&resolver, &format!("{name}.example")).await })
        };
        let attempts: Vec<_> = (0..100).map(ask).collect();
        begin(&begun, LOOKUPS_MAX).await;
        attempts.iter().for_each(tokio::task::JoinHandle::abort);
        for attempt in attempts {
            attempt.await.unwrap_err();
        }
        let healthy = ask(100);
        drop(go);
        assert_eq!(healthy.await.unwrap(), Ok(vec![ADDRESS]));
        assert_eq!(begun.load(Ordering::SeqCst), LOOKUPS_MAX + 1, "nobody waited for the others");
    }

    #[tokio::test]
    async fn what_is_known_serves_while_it_is_looked_up_again() {
        let (resolver, go, begun) = waiting();
        let resolver = GuardedResolver { fresh_for: Duration::ZERO, ..resolver };
        go.send(()).unwrap();
        assert_eq!(resolve(&resolver, "shop.example").await, Ok(vec![ADDRESS]));
        for _ in 0..2 {
            assert_eq!(resolve(&resolver, "shop.example").await, Ok(vec![ADDRESS]));
        }
        begin(&begun, 2).await;
        drop(go);
    }

    async fn class(resolver: &GuardedResolver, name: &str) -> NotResolved {
        let error = resolver.resolve(name.parse().unwrap()).await.err().unwrap();
        error.downcast_ref::<NotResolved>().unwrap().clone()
    }

    #[tokio::test]
    async fn no_answer_is_ours_unless_another_name_has_one() {
        let resolver = asking(|name| match name {
            "shop.example" => Ok(vec![ADDRESS]),
            "no.example" => Err(NotResolved::Unknown("none".to_owned())),
            _ => Err(NotResolved::Unanswered("try again".to_owned())),
        });
        let (ours, theirs) = (NotResolved::Local, NotResolved::Unanswered);
        let cause = || "try again".to_owned();
        assert_eq!(class(&resolver, "dead.example").await, ours(cause()));
        assert_eq!(class(&resolver, "no.example").await, NotResolved::Unknown("none".to_owned()));
        assert_eq!(class(&resolver, "dead.example").await, ours(cause()));
        assert_eq!(resolve(&resolver, "shop.example").await, Ok(vec![ADDRESS]));
        assert_eq!(class(&resolver, "dead.example").await, theirs(cause()));
        // A minute later.
        let old = Known { at: Instant::now() - WORKING_FOR, addresses: vec![ADDRESS] };
        resolver.names.lock().unwrap().insert("shop.example".to_owned(), Entry::Known(old));
        assert_eq!(class(&resolver, "dead.example").await, ours(cause()));
    }

    #[tokio::test]
    async fn each_look_up_takes_a_part_of_the_time_out() {
        let (resolver, go, _) = waiting();
        let resolver = GuardedResolver { patience: Duration::from_millis(1), ..resolver };
        for name in 0..=LOOKUPS_MAX {
            // The last name waits for a thread, so its look-up does not begin.
            let class = class(&resolver, &format!("{name}.example")).await;
            assert!(matches!(class, NotResolved::Local(_)), "{name}: {class}");
        }
        let at = Instant::now();
        let known = Known { at, addresses: vec![ADDRESS] };
        resolver.names.lock().unwrap().insert("shop.example".to_owned(), Entry::Known(known));
        let asked = class(&resolver, "0.example").await;
        assert!(matches!(asked, NotResolved::Unanswered(_)), "{asked}");
        let not_asked = class(&resolver, "another.example").await;
        assert!(matches!(not_asked, NotResolved::Local(_)), "{not_asked}");
        drop(go);
    }

    #[test]
    fn addresses_without_a_route_yield_to_others() {
        let (near, far) = (SocketAddr::from(([127, 0, 0, 1], 0)), "[fe80::1]:0".parse().unwrap());
        assert_eq!(with_route(vec![far, near, far]), [near]);
        assert_eq!(with_route(vec![far]), [far], "a link-local address without its link");
    }

    #[test]
    fn hosts_are_counted_by_name_and_port() {
        assert_eq!(host_key("https://Shop.example/a"), "shop.example:443");
        assert_eq!(host_key("https://shop.example:443/b"), "shop.example:443");
        assert_eq!(host_key("http://shop.example/"), "shop.example:80");
        assert_eq!(host_key("nonsense"), "");
    }
}
