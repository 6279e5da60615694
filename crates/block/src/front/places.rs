//! Numbers of channels: in all, and of one client (a user, or a host). Each channel costs a thread and memory.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use tranship_core::{Receiver, Sender};

const MOST: usize = 256;
const MOST_OF_ONE: usize = 64;

/// Taken places: the owner of each, which lasts as long as it is held.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Vec<(String, Weak<()>)>>);

/// A place, until it is dropped.
pub(super) type Place = Arc<()>;

/// Client at the other end of a channel.
#[derive(Debug)]
pub(super) struct Who {
    /// Name in words.
    pub name: String,
    /// A user, or a host.
    pub owner: String,
}

impl Who {
    fn new((process, user): (u32, u32), place: Option<&str>) -> Who {
        let Some(place) = place else {
            let owner = format!("user {user}");
            let name = format!("process {process} of {owner}");
            return Who { name, owner };
        };
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        let owner = host.to_owned();
        let name = place.to_owned();
        Who { name, owner }
    }

    pub(super) fn receives(sender: &Sender) -> Who {
        let status = sender.status();
        Who::new(
            (status.peer_pid, status.peer_uid),
            status.peer_place.as_deref(),
        )
    }

    pub(super) fn sends(receiver: &Receiver) -> Who {
        let status = receiver.status();
        Who::new(
            (status.peer_pid, status.peer_uid),
            status.peer_place.as_deref(),
        )
    }
}

impl Places {
    /// Takes a place, if there is one; else returns the reason why there is none.
    pub(super) fn take(&self, who: &Who) -> Result<Place, String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, place)| place.strong_count() > 0);
        let count = all.len();
        let of_one = all.iter().filter(|(owner, _)| *owner == who.owner).count();
        if of_one >= MOST_OF_ONE || count >= MOST {
            return Err(format!(
                "{} has {of_one} channels of this kind, all have {count}; at most {MOST_OF_ONE} and {MOST}",
                who.owner
            ));
        }
        let place = Place::default();
        all.push((who.owner.clone(), Arc::downgrade(&place)));
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_and_each_host_has_so_many() {
        let places = Places::default();
        let from = |port: u16| Who::new((1, 2), Some(&format!("10.0.0.1:{port}")));
        let all: Vec<Place> = (0..64)
            .map(|port| places.take(&from(port)).expect("a place"))
            .collect();
        assert!(
            places
                .take(&from(64))
                .expect_err("enough")
                .contains("10.0.0.1 has 64")
        );
        let user = |process| Who::new((process, 7), None);
        places.take(&user(1)).expect("another's");
        assert_eq!(user(1).name, "process 1 of user 7");
        drop(all);
        places.take(&from(64)).expect("free again");
    }
}
