//! The resolver of the HTTP client: a name is resolved and its addresses are checked in one step, so no second
//! resolution can return another address. Addresses written into a URL never reach a resolver and are judged
//! with the URL ([`ReceiverPolicy::check`]).

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use schemas::{ReceiverPolicy, Refusal};
use tokio::sync::{Semaphore, watch};
use url::Url;

/// How many names are asked for at once.
const LOOKUPS_MAX: usize = 16;
/// How long an answer is used: the system does not say what the name's owner allows.
const FRESH_FOR: Duration = Duration::from_secs(30);
/// How long an answer serves while a newer one is looked up: name servers that are away for some receivers delay no
/// other.
const USED_FOR: Duration = Duration::from_secs(300);
/// How many names are known at most.
const NAMES_MAX: usize = 4096;

/// What requests are counted by: host and port. Texts that are no URL share one count; they fail
/// without a request.
pub(crate) fn host_key(text: &str) -> String {
    Url::parse(text).map_or_else(
        |_| String::new(),
        |url| {
            let port = url.port_or_known_default().unwrap_or_default();
            format!("{}:{port}", url.host_str().unwrap_or_default())
        },
    )
}

/// Resolves names and refuses a name as a whole if one of its addresses may not be called.
///
/// The system's resolver blocks a thread for as long as name servers do not answer, longer than any attempt waits
/// for it. So each name is asked for once at a time, however many attempts wait, and few names at once: a name
/// server that is away costs one thread, and never those that the rest of the process needs.
pub(crate) struct GuardedResolver {
    receivers: ReceiverPolicy,
    lookup: Lookup,
    fresh_for: Duration,
    threads: Arc<Semaphore>,
    names: Arc<Mutex<HashMap<String, Entry>>>,
}

/// Asks for the addresses of a name; blocks.
type Lookup = Arc<dyn Fn(&str) -> std::io::Result<Vec<SocketAddr>> + Send + Sync>;
/// The text is the cause of a failure.
type Found = Result<Vec<SocketAddr>, String>;

enum Entry {
    /// A look-up is under way; what was known before it serves meanwhile.
    Asked(watch::Receiver<Option<Found>>, Option<Known>),
    Known(Known),
}

#[derive(Debug, Clone)]
struct Known {
    at: Instant,
    addresses: Vec<SocketAddr>,
}

/// The name servers did not answer, or there is no such name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotResolved(String);

impl GuardedResolver {
    /// Asks the system's resolver.
    pub(crate) fn new(receivers: ReceiverPolicy) -> Self {
        let lookup = |name: &str| Ok((name, 0).to_socket_addrs()?.collect());
        Self::asking(receivers, Arc::new(lookup))
    }

    fn asking(receivers: ReceiverPolicy, lookup: Lookup) -> Self {
        let threads = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Self { receivers, lookup, fresh_for: FRESH_FOR, threads, names: Arc::default() }
    }

    /// What is known of a name, or the look-up that brings it, which is begun if there is none.
    fn ask(&self, name: &str) -> Result<Vec<SocketAddr>, watch::Receiver<Option<Found>>> {
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
        let (sender, answer) = watch::channel(None);
        names.insert(name.to_owned(), Entry::Asked(answer.clone(), known.clone()));
        self.look_up(name, known.clone(), sender);
        known.map(|known| known.addresses).ok_or(answer)
    }

    /// Resolves a name in the background. It ends by itself: who waits for it may have given up.
    fn look_up(&self, name: &str, old: Option<Known>, sender: watch::Sender<Option<Found>>) {
        let (name, lookup) = (name.to_owned(), self.lookup.clone());
        let (threads, known) = (self.threads.clone(), self.names.clone());
        drop(tokio::spawn(async move {
            let thread = threads.acquire_owned().await;
            {
                let mut names = known.lock().unwrap_or_else(PoisonError::into_inner);
                // The table has a receiver, too. Nobody else waits any more: others have their turn.
                if old.is_none() && sender.receiver_count() <= 1 {
                    names.remove(&name);
                    return;
                }
            }
            let asked = name.clone();
            let found = tokio::task::spawn_blocking(move || {
                let found = lookup(&asked).map_err(|error| error.to_string());
                drop(thread);
                found
            });
            let found = found.await.unwrap_or_else(|error| Err(error.to_string()));
            let mut names = known.lock().unwrap_or_else(PoisonError::into_inner);
            let new =
                |addresses: &Vec<_>| Known { at: Instant::now(), addresses: addresses.clone() };
            match found.as_ref().map_or(old, |addresses| Some(new(addresses))) {
                Some(known) => names.insert(name, Entry::Known(known)),
                None => names.remove(&name),
            };
            sender.send_replace(Some(found));
        }));
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (asked, receivers) = (self.ask(name.as_str()), self.receivers.clone());
        Box::pin(async move {
            let found = match asked {
                Ok(found) => found,
                Err(mut answer) => {
                    let found = answer.wait_for(Option::is_some).await?.clone();
                    found.unwrap_or_else(|| Ok(Vec::new())).map_err(NotResolved)?
                }
            };
            let permitted = permit(found, &receivers)?;
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
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

    /// Look-ups that wait until they are let go, and how many began.
    fn waiting() -> (GuardedResolver, std::sync::mpsc::Sender<()>, Arc<AtomicUsize>) {
        let begun = Arc::new(AtomicUsize::new(0));
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (gate, count) = (Mutex::new(gate), begun.clone());
        let lookup = move |name: &str| {
            count.fetch_add(1, Ordering::SeqCst);
            // Fails once nobody can let it go any more.
            let _ = gate.lock().unwrap().recv();
            if name.starts_with("no") {
                Err(std::io::Error::other("no such name"))
            } else {
                Ok(vec![ADDRESS])
            }
        };
        (GuardedResolver::asking(ReceiverPolicy::default(), Arc::new(lookup)), go, begun)
    }

    const ADDRESS: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(1, 1, 1, 1)), 0);

    async fn resolve(resolver: &GuardedResolver, name: &str) -> Result<Vec<SocketAddr>, String> {
        let found = resolver.resolve(name.parse().unwrap()).await;
        found.map(Iterator::collect).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn one_look_up_serves_all_who_ask_and_those_after_them() {
        let (resolver, go, begun) = waiting();
        let name = "shop.example";
        let asked = [resolver.ask(name), resolver.ask(name), resolver.ask(name)];
        assert!(asked.iter().all(Result::is_err), "nothing is known yet");
        go.send(()).unwrap();
        assert_eq!(resolve(&resolver, name).await, Ok(vec![ADDRESS]));
        assert_eq!(resolver.ask(name).ok(), Some(vec![ADDRESS]));
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        // A failure is not kept.
        for _ in 0..2 {
            go.send(()).unwrap();
            assert_eq!(resolve(&resolver, "no.example").await, Err("no such name".to_owned()));
        }
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn name_servers_that_are_away_take_few_threads_and_no_turns() {
        let (resolver, go, begun) = waiting();
        let resolver = Arc::new(resolver);
        let ask = |name: usize| {
            let resolver = resolver.clone();
            tokio::spawn(async move { resolve(&resolver, &format!("{name}.example")).await })
        };
        let attempts: Vec<_> = (0..100).map(ask).collect();
        while begun.load(Ordering::SeqCst) < LOOKUPS_MAX {
            tokio::task::yield_now().await;
        }
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
        while begun.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        drop(go);
    }

    #[test]
    fn hosts_are_counted_by_name_and_port() {
        assert_eq!(host_key("https://Shop.example/a"), "shop.example:443");
        assert_eq!(host_key("https://shop.example:443/b"), "shop.example:443");
        assert_eq!(host_key("http://shop.example/"), "shop.example:80");
        assert_eq!(host_key("nonsense"), "");
    }
}
