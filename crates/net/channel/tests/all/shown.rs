//! Views of the manager on carried channels.

use crate::kit::*;
use std::thread;
use tranship_core::admin::{ChannelStat, StatRecord};
use tranship_core::{ChannelOptions, Domain, PoolOptions};

fn shown(domain: &Domain, address: &str) -> Vec<ChannelStat> {
    let records = domain.admin().stat().expect("stat").into_iter();
    let of = |record| match record {
        StatRecord::Channel(channel) if channel.name == address => Some(channel),
        _ => None,
    };
    records.filter_map(of).collect()
}

#[test]
fn each_end_is_shown_with_where_the_other_one_is() {
    let _dog = dog();
    let world = World::new();
    let arrivals = PoolOptions::new(1 << 20).name("arrivals");
    let arrivals = world.b.create_pool(arrivals).expect("pool");
    for address in world.carried("shown") {
        let receives = ChannelOptions::new().snapshots(arrivals.id());
        let (mut to, mut from) = world.channel_with(&address, ChannelOptions::new(), receives);
        for number in 0..3 {
            to.send((b"a word", number)).expect("send");
            from.recv().expect("recv");
        }
        let (near, far) = loop {
            let all = shown(&world.a, &address);
            let near = all.iter().find(|c| c.source == Some(world.a.id()));
            let far = all.iter().find(|c| c.sink == Some(world.b.id()));
            match (near, far) {
                // The manager reads the places where the carrier and the program are.
                (Some(near), Some(far)) if (near.taken, far.taken) == (3, 3) => {
                    assert_eq!(all.len(), 2, "{all:?}");
                    break (near.clone(), far.clone());
                }
                _ => thread::yield_now(),
            }
        };
        assert_eq!((near.sink, far.source), (None, None), "{address}");
        assert_eq!(near.place, to.status().peer_place, "{address}");
        assert_eq!(far.place, from.status().peer_place, "{address}");
        assert!(near.place.is_some() && far.place.is_some(), "{address}");
        assert_eq!(far.pools, [arrivals.id()], "{address}");
        assert!(near.ring_bytes > 0 && far.ring_bytes > 0, "{address}");
        drop((to, from));
        while !shown(&world.a, &address).is_empty() {
            thread::yield_now();
        }
    }
}
