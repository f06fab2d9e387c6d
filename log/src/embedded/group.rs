//! Consumer groups of this process: who is a member, who owns which partition, who may commit.
//!
//! Pure: time is an argument. **Invariants:** a partition has one owner at most; it gets a new one only
//! after the old one was told ([`Change::Revoked`]), left, or was put out, and never while the old one
//! is inside a commit ([`Groups::hold`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use schemas::{Layout, Topic};

use super::assignment;
use crate::TopicPartition;

/// One membership. A member that joins again gets another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId(u64);

/// What a member learns when it polls.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It owns what it owned.
    None,
    /// It owns these too.
    Assigned(Vec<TopicPartition>),
    /// It does not own these any more.
    Revoked(Vec<TopicPartition>),
}

/// Why a member is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// It was silent for too long, or does not own what it says it does. It may join again.
    Evicted,
    /// Another one of the same name took its place, for good.
    Superseded,
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    layout: Layout,
    session_timeout: Duration,
    members_ever: u64,
    groups: HashMap<&'static str, Group>,
}

#[derive(Debug, Default)]
struct Group {
    members: BTreeMap<String, Member>,
    /// Superseded while they were inside a commit: they own their partitions until it ends.
    leaving: Vec<Member>,
    /// The last membership under each name.
    latest: HashMap<String, MemberId>,
    /// How often the shares changed; tells log lines apart.
    generation: u64,
}

#[derive(Debug)]
struct Member {
    id: MemberId,
    topics: Vec<Topic>,
    owned: BTreeSet<TopicPartition>,
    share: BTreeSet<TopicPartition>,
    seen_at: Instant,
    busy: bool,
}

impl Groups {
    /// No groups yet.
    pub(super) fn new(layout: Layout, session_timeout: Duration) -> Self {
        Self { layout, session_timeout, members_ever: 0, groups: HashMap::new() }
    }

    /// How long a member may be silent.
    pub(super) fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    /// Changes how long a member may be silent.
    pub(super) fn set_session_timeout(&mut self, session_timeout: Duration) {
        self.session_timeout = session_timeout;
    }

    /// Joins a group; whoever had the name before is superseded.
    pub(super) fn join(
        &mut self,
        group: &'static str,
        name: &str,
        topics: &[Topic],
        now: Instant,
    ) -> MemberId {
        self.members_ever += 1;
        let id = MemberId(self.members_ever);
        let member = Member {
            id,
            topics: topics.to_vec(),
            owned: BTreeSet::new(),
            share: BTreeSet::new(),
            seen_at: now,
            busy: false,
        };
        let joined = self.groups.entry(group).or_default();
        joined.latest.insert(name.to_owned(), id);
        let superseded = joined.members.insert(name.to_owned(), member);
        joined.leaving.extend(superseded.filter(|old| old.busy));
        joined.share_out(group, &self.layout);
        id
    }

    /// Leaves the group. Tells whether that changed anything.
    pub(super) fn leave(&mut self, group: &'static str, name: &str, id: MemberId) -> bool {
        let Some(left) = self.groups.get_mut(group) else { return false };
        if left.members.get(name).is_none_or(|member| member.id != id) {
            return false;
        }
        left.members.remove(name);
        left.share_out(group, &self.layout);
        true
    }

    /// What changed for a member. The flag tells whether something changed for others too.
    ///
    /// # Errors
    /// [`Lost`] if it is no member any more.
    pub(super) fn poll(
        &mut self,
        group: &'static str,
        name: &str,
        id: MemberId,
        now: Instant,
    ) -> Result<(Change, bool), Lost> {
        let polled = self.groups.get_mut(group).ok_or(Lost::Evicted)?;
        polled.member(name, id)?.seen_at = now;
        let evicted = polled.evict_silent(now, self.session_timeout);
        if evicted {
            polled.share_out(group, &self.layout);
        }
        let member = polled.member(name, id)?;
        let lost: Vec<_> = member.owned.difference(&member.share).copied().collect();
        if !lost.is_empty() {
            member.owned.retain(|partition| member.share.contains(partition));
            return Ok((Change::Revoked(lost), true));
        }
        let mut gained: BTreeSet<_> = member.share.difference(&member.owned).copied().collect();
        if gained.is_empty() {
            return Ok((Change::None, evicted));
        }
        for other in polled.members.values().chain(&polled.leaving).filter(|m| m.id != id) {
            gained.retain(|partition| !other.owned.contains(partition));
        }
        if gained.is_empty() {
            return Ok((Change::None, evicted));
        }
        polled.member(name, id)?.owned.extend(&gained);
        Ok((Change::Assigned(gained.into_iter().collect()), evicted))
    }

    /// Keeps a member in the group, and its partitions its own, until [`Groups::release`].
    ///
    /// # Errors
    /// [`Lost`] if it is no member any more, or does not own all of `needed`.
    pub(super) fn hold(
        &mut self,
        group: &'static str,
        name: &str,
        id: MemberId,
        needed: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<(), Lost> {
        let held = self.groups.get_mut(group).ok_or(Lost::Evicted)?;
        let member = held.member(name, id)?;
        if needed.into_iter().any(|partition| !member.owned.contains(&partition)) {
            return Err(Lost::Evicted);
        }
        member.busy = true;
        Ok(())
    }

    /// Ends a hold. Its time does not count as silence. Tells whether that set partitions free.
    pub(super) fn release(
        &mut self,
        group: &'static str,
        name: &str,
        id: MemberId,
        now: Instant,
    ) -> bool {
        let Some(released) = self.groups.get_mut(group) else { return false };
        if let Ok(member) = released.member(name, id) {
            member.busy = false;
            member.seen_at = now;
        }
        let leaving = released.leaving.len();
        released.leaving.retain(|member| member.id != id);
        released.leaving.len() < leaving
    }
}

impl Group {
    fn member(&mut self, name: &str, id: MemberId) -> Result<&mut Member, Lost> {
        let latest = self.latest.get(name).is_some_and(|latest| *latest == id);
        let lost = if latest { Lost::Evicted } else { Lost::Superseded };
        self.members.get_mut(name).filter(|member| member.id == id).ok_or(lost)
    }

    fn evict_silent(&mut self, now: Instant, session_timeout: Duration) -> bool {
        let before = self.members.len();
        self.members.retain(|name, member| {
            let silent = now.saturating_duration_since(member.seen_at);
            let keep = member.busy || silent <= session_timeout;
            if !keep {
                tracing::warn!(
                    kafka.member = name.as_str(),
                    duration_ms = silent.as_millis(),
                    "a member of a consumer group was silent for too long and lost its partitions"
                );
            }
            keep
        });
        self.members.len() < before
    }

    fn share_out(&mut self, group: &'static str, layout: &Layout) {
        let topics = self.members.iter().map(|(n, m)| (n.clone(), m.topics.clone())).collect();
        let mut shares = assignment::range(&topics, layout);
        for (name, member) in &mut self.members {
            member.share = shares.remove(name).unwrap_or_default();
        }
        self.generation += 1;
        tracing::debug!(
            kafka.group = group,
            kafka.generation = self.generation,
            members = self.members.len(),
            "partitions of a consumer group are shared anew"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use schemas::Partition;

    const LAYOUT: Layout = Layout { lanes: 1, orders: 4, webhooks: 2 };
    const GROUP: &str = "g";
    const SESSION: Duration = Duration::from_secs(10);
    const TOPICS: [Topic; 2] = [Topic::Orders, Topic::OrdersCommands];

    fn of(partitions: std::ops::Range<u32>) -> Vec<TopicPartition> {
        let mut list: Vec<_> = TOPICS
            .iter()
            .flat_map(|t| {
                let topic = *t;
                partitions.clone().map(move |p| TopicPartition { topic, partition: Partition(p) })
            })
            .collect();
        list.sort();
        list
    }

    struct Bench {
        groups: Groups,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self { groups: Groups::new(LAYOUT, SESSION), now: Instant::now() }
        }

        fn join(&mut self, name: &str) -> MemberId {
            self.groups.join(GROUP, name, &TOPICS, self.now)
        }

        fn poll(&mut self, name: &str, id: MemberId) -> Result<Change, Lost> {
            self.groups.poll(GROUP, name, id, self.now).map(|(change, _)| change)
        }
    }

    #[test]
    fn a_new_member_waits_until_the_old_one_was_told() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        assert_eq!(bench.poll("a", a), Ok(Change::Assigned(of(0..4))));
        let b = bench.join("b");
        assert_eq!(bench.poll("b", b), Ok(Change::None));
        assert_eq!(bench.poll("a", a), Ok(Change::Revoked(of(2..4))));
        assert_eq!(bench.poll("a", a), Ok(Change::None));
        assert_eq!(bench.poll("b", b), Ok(Change::Assigned(of(2..4))));
        assert!(bench.groups.leave(GROUP, "b", b));
        assert_eq!(bench.poll("a", a), Ok(Change::Assigned(of(2..4))));
    }

    #[test]
    fn a_silent_member_is_put_out_and_cannot_commit() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        bench.poll("a", a).unwrap();
        let b = bench.join("b");
        bench.now += SESSION + Duration::from_millis(1);
        assert_eq!(bench.poll("b", b), Ok(Change::Assigned(of(0..4))));
        assert_eq!(bench.groups.hold(GROUP, "a", a, of(0..1)), Err(Lost::Evicted));
        assert_eq!(bench.poll("a", a), Err(Lost::Evicted));
    }

    #[test]
    fn a_member_inside_a_commit_keeps_its_partitions() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        bench.poll("a", a).unwrap();
        bench.groups.hold(GROUP, "a", a, of(0..4)).unwrap();
        let b = bench.join("b");
        bench.now += SESSION * 2;
        assert_eq!(bench.poll("b", b), Ok(Change::None));
        let second = bench.join("a");
        assert_eq!(bench.poll("a", second), Ok(Change::None));
        assert_eq!(bench.poll("b", b), Ok(Change::None));
        bench.groups.release(GROUP, "a", a, bench.now);
        assert_eq!(bench.poll("a", second), Ok(Change::Assigned(of(0..2))));
        assert_eq!(bench.poll("b", b), Ok(Change::Assigned(of(2..4))));
        assert_eq!(bench.poll("a", a), Err(Lost::Superseded));
    }

    #[test]
    fn the_time_of_a_commit_is_not_silence() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        let b = bench.join("b");
        bench.groups.hold(GROUP, "a", a, []).unwrap();
        bench.now += SESSION * 2;
        bench.groups.release(GROUP, "a", a, bench.now);
        bench.poll("b", b).unwrap();
        assert_eq!(bench.poll("a", a), Ok(Change::Assigned(of(0..2))));
    }

    #[test]
    fn only_owned_partitions_can_be_committed() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        assert_eq!(bench.groups.hold(GROUP, "a", a, of(0..1)), Err(Lost::Evicted));
        bench.poll("a", a).unwrap();
        assert_eq!(bench.groups.hold(GROUP, "a", a, of(0..4)), Ok(()));
    }

    #[test]
    fn a_name_once_superseded_stays_so() {
        let mut bench = Bench::new();
        let first = bench.join("a");
        let second = bench.join("a");
        assert_eq!(bench.poll("a", first), Err(Lost::Superseded));
        bench.groups.leave(GROUP, "a", second);
        assert_eq!(bench.poll("a", first), Err(Lost::Superseded));
        assert_eq!(bench.poll("a", second), Err(Lost::Evicted));
        assert!(!bench.groups.leave(GROUP, "a", first));
    }

    proptest! {
        /// Whatever members do, no partition has two owners who may commit, and once all of them have
        /// polled often enough every partition has one.
        #[test]
        fn one_owner_at_most_and_one_in_the_end(
            acts in prop::collection::vec((0..5_usize, 0..6_usize, 0..6_u64), 1..80)
        ) {
            let names = ["a", "b", "c", "d", "e"];
            let mut bench = Bench::new();
            let mut believed: BTreeMap<_, BTreeSet<TopicPartition>> = BTreeMap::new();
            let mut present: BTreeMap<usize, MemberId> = BTreeMap::new();
            let mut busy: BTreeSet<(usize, MemberId)> = BTreeSet::new();
            for (who, act, seconds) in acts {
                bench.now += Duration::from_secs(seconds);
                let name = names[who];
                match (act, present.get(&who).copied()) {
                    (0, _) | (_, None) => {
                        present.insert(who, bench.join(name));
                    }
                    (1, Some(id)) if !busy.contains(&(who, id)) => {
                        bench.groups.leave(GROUP, name, id);
                        present.remove(&who);
                        believed.remove(&(who, id));
                    }
                    (2, Some(id)) => {
                        let owned = believed.get(&(who, id)).cloned().unwrap_or_default();
                        if bench.groups.hold(GROUP, name, id, owned).is_ok() {
                            busy.insert((who, id));
                        }
                    }
                    (3, Some(_)) => {
                        for (who, id) in std::mem::take(&mut busy) {
                            bench.groups.release(GROUP, names[who], id, bench.now);
                        }
                    }
                    (_, Some(id)) if !busy.contains(&(who, id)) => match bench.poll(name, id) {
                        Ok(Change::Assigned(gained)) => {
                            believed.entry((who, id)).or_default().extend(gained);
                        }
                        Ok(Change::Revoked(lost)) => {
                            believed.entry((who, id)).or_default().retain(|p| !lost.contains(p));
                        }
                        Ok(Change::None) => {}
                        Err(_) => {
                            believed.remove(&(who, id));
                            present.remove(&who);
                        }
                    },
                    _ => {}
                }
                let mut seen = BTreeSet::new();
                for ((who, id), owned) in &believed {
                    let may = busy.contains(&(*who, *id))
                        || bench.groups.hold(GROUP, names[*who], *id, owned.clone()).is_ok();
                    if may {
                        for partition in owned {
                            prop_assert!(seen.insert(*partition), "{partition} has two owners");
                        }
                    }
                    if may && !busy.contains(&(*who, *id)) {
                        bench.groups.release(GROUP, names[*who], *id, bench.now);
                    }
                }
            }
            for (who, id) in std::mem::take(&mut busy) {
                bench.groups.release(GROUP, names[who], id, bench.now);
            }
            let members: Vec<_> = names.iter().map(|n| (*n, bench.join(n))).collect();
            let mut owned = BTreeSet::new();
            for _ in 0..3 {
                for (name, id) in &members {
                    if let Change::Assigned(gained) = bench.poll(name, *id).unwrap() {
                        owned.extend(gained);
                    }
                }
            }
            prop_assert_eq!(owned.into_iter().collect::<Vec<_>>(), of(0..4));
        }
    }
}
