//! Consumer groups of this process: members, owners of partitions, and permission to commit.
//!
//! Pure: time is an argument. **Invariants:** a partition has one owner at most; it gets a new one only
//! after it was revoked from the old one ([`Change::Revoked`]), or the old one left, was evicted or was
//! superseded, and never while the old one is inside a commit ([`Groups::hold`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use schemas::{Layout, Topic};

use super::assignment;
use crate::TopicPartition;

/// One membership. A member that joins again gets another number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId {
    group: &'static str,
    name: String,
    number: u64,
}

/// Change of a member's partitions since its last poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Assigned(Vec<TopicPartition>),
    Revoked(Vec<TopicPartition>),
}

/// Reason why a member lost its membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// It did not poll in time, or does not own a partition that its commit needs. It may join
    /// again.
    Evicted,
    /// Another member with its name replaced it for good.
    Superseded,
}

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
    /// Members superseded while inside a commit: they own their partitions until it ends.
    leaving: Vec<Member>,
    /// The number of the last member of each name.
    latest: HashMap<String, u64>,
    /// Number of reassignments.
    generation: u64,
}

#[derive(Debug)]
struct Member {
    number: u64,
    topics: Vec<Topic>,
    owned: BTreeSet<TopicPartition>,
    /// Partitions that it is to own once their previous owners have released them.
    share: BTreeSet<TopicPartition>,
    polled_at: Instant,
    is_committing: bool,
}

impl Groups {
    pub(super) fn new(layout: Layout, session_timeout: Duration) -> Self {
        Self { layout, session_timeout, members_ever: 0, groups: HashMap::new() }
    }

    pub(super) fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    pub(super) fn set_session_timeout(&mut self, session_timeout: Duration) {
        self.session_timeout = session_timeout;
    }

    /// Joins a group; an earlier member of the name is superseded.
    pub(super) fn join(
        &mut self,
        group: &'static str,
        name: &str,
        topics: &[Topic],
        now: Instant,
    ) -> MemberId {
        self.members_ever += 1;
        let (number, name) = (self.members_ever, name.to_owned());
        let member = Member {
            number,
            topics: topics.to_vec(),
            owned: BTreeSet::new(),
            share: BTreeSet::new(),
            polled_at: now,
            is_committing: false,
        };
        let joined = self.groups.entry(group).or_default();
        joined.latest.insert(name.clone(), number);
        let superseded = joined.members.insert(name.clone(), member);
        joined.leaving.extend(superseded.filter(|old| old.is_committing));
        joined.rebalance(group, &self.layout);
        MemberId { group, name, number }
    }

    /// Leaves the group. Returns `true` if the member was in it.
    pub(super) fn leave(&mut self, id: &MemberId) -> bool {
        let Some(left) = self.groups.get_mut(id.group) else { return false };
        if left.member(id).is_err() {
            return false;
        }
        left.members.remove(&id.name);
        left.rebalance(id.group, &self.layout);
        true
    }

    /// Returns the change for a member, and `true` if something changed for others too.
    pub(super) fn poll(&mut self, id: &MemberId, now: Instant) -> Result<(Change, bool), Lost> {
        let polled = self.groups.get_mut(id.group).ok_or(Lost::Evicted)?;
        polled.member(id)?.polled_at = now;
        let evicted = polled.evict_silent(now, self.session_timeout);
        if evicted {
            polled.rebalance(id.group, &self.layout);
        }
        let member = polled.member(id)?;
        let lost: Vec<_> = member.owned.difference(&member.share).copied().collect();
        if !lost.is_empty() {
            member.owned.retain(|partition| member.share.contains(partition));
            return Ok((Change::Revoked(lost), true));
        }
        let mut gained: BTreeSet<_> = member.share.difference(&member.owned).copied().collect();
        for other in polled.members.values().chain(&polled.leaving) {
            gained.retain(|partition| !other.owned.contains(partition));
        }
        if gained.is_empty() {
            return Ok((Change::None, evicted));
        }
        polled.member(id)?.owned.extend(&gained);
        Ok((Change::Assigned(gained.into_iter().collect()), evicted))
    }

    /// Keeps a member and its partitions in the group until [`Groups::release`]. The member must
    /// own all of `needed`.
    pub(super) fn hold(
        &mut self,
        id: &MemberId,
        needed: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<(), Lost> {
        let member = self.groups.get_mut(id.group).ok_or(Lost::Evicted)?.member(id)?;
        if needed.into_iter().any(|partition| !member.owned.contains(&partition)) {
            return Err(Lost::Evicted);
        }
        member.is_committing = true;
        Ok(())
    }

    /// Ends a hold, whose duration does not count as silence. Returns `true` if partitions became
    /// free.
    pub(super) fn release(&mut self, id: &MemberId, now: Instant) -> bool {
        let Some(released) = self.groups.get_mut(id.group) else { return false };
        if let Ok(member) = released.member(id) {
            member.is_committing = false;
            member.polled_at = now;
        }
        let leaving = released.leaving.len();
        released.leaving.retain(|member| member.number != id.number);
        released.leaving.len() < leaving
    }
}

impl Group {
    fn member(&mut self, MemberId { name, number, .. }: &MemberId) -> Result<&mut Member, Lost> {
        let is_latest = self.latest.get(name) == Some(number);
        let lost = if is_latest { Lost::Evicted } else { Lost::Superseded };
        self.members.get_mut(name).filter(|member| member.number == *number).ok_or(lost)
    }

    fn evict_silent(&mut self, now: Instant, session_timeout: Duration) -> bool {
        let before = self.members.len();
        self.members.retain(|name, member| {
            let silent = now.saturating_duration_since(member.polled_at);
            let keep = member.is_committing || silent <= session_timeout;
            if !keep {
                tracing::warn!(
                    kafka.member = name.as_str(),
                    duration_ms = silent.as_millis(),
                    "a member of a consumer group did not poll in time and lost its partitions"
                );
            }
            keep
        });
        self.members.len() < before
    }

    fn rebalance(&mut self, group: &'static str, layout: &Layout) {
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
            "a consumer group was rebalanced"
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

        fn poll(&mut self, id: &MemberId) -> Result<Change, Lost> {
            self.groups.poll(id, self.now).map(|(change, _)| change)
        }
    }

    #[test]
    fn a_silent_member_is_evicted_and_cannot_commit() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        assert_eq!(bench.groups.hold(&a, of(0..1)), Err(Lost::Evicted), "nothing is assigned yet");
        bench.poll(&a).unwrap();
        let b = bench.join("b");
        bench.now += SESSION + Duration::from_millis(1);
        assert_eq!(bench.poll(&b), Ok(Change::Assigned(of(0..4))));
        assert_eq!(bench.groups.hold(&a, of(0..1)), Err(Lost::Evicted));
        assert_eq!(bench.poll(&a), Err(Lost::Evicted));
    }

    #[test]
    fn a_member_inside_a_commit_keeps_its_partitions() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        bench.poll(&a).unwrap();
        bench.groups.hold(&a, of(0..4)).unwrap();
        let b = bench.join("b");
        bench.now += SESSION * 2;
        assert_eq!(bench.poll(&b), Ok(Change::None));
        let second = bench.join("a");
        assert_eq!(bench.poll(&second), Ok(Change::None));
        assert_eq!(bench.poll(&b), Ok(Change::None));
        bench.groups.release(&a, bench.now);
        assert_eq!(bench.poll(&second), Ok(Change::Assigned(of(0..2))));
        assert_eq!(bench.poll(&b), Ok(Change::Assigned(of(2..4))));
        assert_eq!(bench.poll(&a), Err(Lost::Superseded));
    }

    #[test]
    fn the_time_of_a_commit_is_not_silence() {
        let mut bench = Bench::new();
        let a = bench.join("a");
        let b = bench.join("b");
        bench.groups.hold(&a, []).unwrap();
        bench.now += SESSION * 2;
        bench.groups.release(&a, bench.now);
        bench.poll(&b).unwrap();
        assert_eq!(bench.poll(&a), Ok(Change::Assigned(of(0..2))));
    }

    #[test]
    fn a_name_once_superseded_stays_so() {
        let mut bench = Bench::new();
        let first = bench.join("a");
        let second = bench.join("a");
        assert_eq!(bench.poll(&first), Err(Lost::Superseded));
        assert!(bench.groups.leave(&second));
        assert_eq!(bench.poll(&first), Err(Lost::Superseded));
        assert_eq!(bench.poll(&second), Err(Lost::Evicted));
        assert!(!bench.groups.leave(&first));
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
            let mut believed: BTreeMap<MemberId, BTreeSet<TopicPartition>> = BTreeMap::new();
            let mut present: BTreeMap<usize, MemberId> = BTreeMap::new();
            let mut committing: BTreeSet<MemberId> = BTreeSet::new();
            for (who, act, seconds) in acts {
                bench.now += Duration::from_secs(seconds);
                match (act, present.get(&who).cloned()) {
                    (0, _) | (_, None) => {
                        present.insert(who, bench.join(names[who]));
                    }
                    (1, Some(id)) if !committing.contains(&id) => {
                        bench.groups.leave(&id);
                        present.remove(&who);
                        believed.remove(&id);
                    }
                    (2, Some(id)) => {
                        let owned = believed.get(&id).cloned().unwrap_or_default();
                        if bench.groups.hold(&id, owned).is_ok() {
                            committing.insert(id);
                        }
                    }
                    (3, Some(_)) => {
                        for id in std::mem::take(&mut committing) {
                            bench.groups.release(&id, bench.now);
                        }
                    }
                    (_, Some(id)) if !committing.contains(&id) => match bench.poll(&id) {
                        Ok(Change::Assigned(gained)) => {
                            believed.entry(id).or_default().extend(gained);
                        }
                        Ok(Change::Revoked(lost)) => {
                            believed.entry(id).or_default().retain(|p| !lost.contains(p));
                        }
                        Ok(Change::None) => {}
                        Err(_) => {
                            believed.remove(&id);
                            present.remove(&who);
                        }
                    },
                    _ => {}
                }
                let mut seen = BTreeSet::new();
                for (id, owned) in &believed {
                    let is_committing = committing.contains(id);
                    if !is_committing && bench.groups.hold(id, owned.clone()).is_err() {
                        continue;
                    }
                    for partition in owned {
                        prop_assert!(seen.insert(*partition), "{partition} has two owners");
                    }
                    if !is_committing {
                        bench.groups.release(id, bench.now);
                    }
                }
            }
            for id in committing {
                bench.groups.release(&id, bench.now);
            }
            let members: Vec<_> = names.iter().map(|name| bench.join(name)).collect();
            let mut owned = BTreeSet::new();
            for _ in 0..3 {
                for id in &members {
                    if let Change::Assigned(gained) = bench.poll(id).unwrap() {
                        owned.extend(gained);
                    }
                }
            }
            prop_assert_eq!(owned.into_iter().collect::<Vec<_>>(), of(0..4));
        }
    }
}
