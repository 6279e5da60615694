//! One step of an untrusted domain: a request, a scene of several, or what happens to its process.

use std::time::Duration;

use tranship_manager::state::Input;
use tranship_proto::{DomainId, Refusal, RefusalCode};

use super::bytes::Bytes;
use super::simulated::Simulated;
use super::world::World;

impl World {
    /// Does one step of one untrusted domain.
    pub fn something(&mut self, bytes: &mut Bytes<'_>) {
        let client = self.untrusted(bytes);
        match bytes.below(32) {
            0 => self.hang_up(client),
            1 => {
                let first = bytes.one_in(2);
                if let Some(process) = self.clients.get(&client).map(|c| c.process) {
                    self.die(process, first);
                }
            }
            2 => self.feed(Input::Blocked { client }),
            3 => {
                self.shell.now += Duration::from_millis(u64::from(bytes.number()) % 20_000);
                self.feed(Input::Tick);
            }
            4 => {
                let n = bytes.below(40);
                self.closed(n);
            }
            5 => {
                let request = self.request(bytes);
                self.feed(Input::Crippled { client, request });
            }
            6 => {
                let refusal = Refusal {
                    code: RefusalCode::BadArgument,
                    asked: 0,
                    available: 0,
                };
                self.feed(Input::Violation { client, refusal });
            }
            7 | 8 => self.datagram(client, bytes),
            9..=13 => {
                for _ in 0..bytes.below(12) {
                    self.sent(client);
                }
            }
            14 => {
                // Another connection of the same process, which resumes the same domain.
                let Some((uid, process)) = self.clients.get(&client).map(|c| (c.uid, c.process))
                else {
                    return;
                };
                let again = self.connect(uid, process);
                let resume = DomainId(bytes.pick(&self.seen.domains));
                self.greet(again, Some(resume));
            }
            15 if bytes.one_in(3) => self.still_honest(),
            16 | 17 => self.scene(bytes),
            _ => {
                let request = self.request(bytes);
                self.utter(client, request, bytes);
            }
        }
    }

    fn scene(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(8) {
            0 | 1 => self.befriend(bytes),
            2 | 3 => self.trade(bytes),
            4 | 5 => self.hoard(bytes),
            _ => self.trespass(bytes),
        }
    }
}
