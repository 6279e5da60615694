//! The victims, started as the scene prescribes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use tranship_testkit::{Launch, Peer, Privilege, Watchdog, is_root, skipped};

use crate::cast::{self, Answer, Ask};

/// Attacker and victims of a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// Victims as the test runs, the attacker another user without any right.
    OtherUser,
    /// All of one user; the victims are not dumpable.
    SameUser,
    /// Victims as root, the attacker root with the capabilities over files.
    RootOfFiles,
}

pub use tranship_testkit::hostile::SOCKET;

pub struct Stage {
    pub scene: Scene,
    pub manager: Peer,
    pub writer: Peer,
    pub third: Peer,
    path: PathBuf,
    dog: Watchdog,
    _dir: tempfile::TempDir,
}

impl Stage {
    /// Starts the victims; `None`, after saying so, where the scene is impossible.
    pub fn new(scene: Scene) -> Option<Self> {
        if scene != Scene::SameUser && !is_root() {
            skipped("two kinds of users need root to start them");
            return None;
        }
        let dog = Watchdog::new();
        let dir = tranship_testkit::folder().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let path = dir.path().join("manager.sock");
        let victim = |launch: Launch| {
            let launch = launch.privilege(Self::victims(scene)).env(SOCKET, &path);
            if scene == Scene::OtherUser {
                launch
            } else {
                launch.undumpable()
            }
            .start()
            .unwrap()
        };
        let manager = victim(cast::manager());
        assert!(matches!(manager.expect(), Answer::Ready));
        let writer = victim(cast::writer());
        let third = victim(cast::third());
        for peer in [&writer, &third] {
            assert!(matches!(peer.expect(), Answer::Ready));
        }
        let stage = Self {
            scene,
            manager,
            writer,
            third,
            path,
            dog,
            _dir: dir,
        };
        stage.still_serving("before anything");
        Some(stage)
    }

    fn victims(scene: Scene) -> Privilege {
        match scene {
            Scene::SameUser if is_root() => Privilege::nobody(),
            _ => Privilege::Inherit,
        }
    }

    /// Starts the attacker. Its stderr (its seed) is shown when something fails.
    pub fn attacker(&self, launch: Launch) -> Peer {
        let privilege = match self.scene {
            Scene::RootOfFiles => Privilege::root_of_files(),
            Scene::OtherUser => Privilege::nobody(),
            Scene::SameUser => Self::victims(self.scene),
        };
        launch
            .privilege(privilege)
            .env(SOCKET, &self.path)
            .capture_stderr()
            .start()
            .unwrap()
    }

    pub fn victims_by_name(&self) -> [(&'static str, &Peer); 3] {
        [
            ("manager", &self.manager),
            ("writer", &self.writer),
            ("third", &self.third),
        ]
    }

    /// Honest frames go on arriving whole, and the manager answers both honest domains.
    #[track_caller]
    pub fn still_serving(&self, after: &str) {
        self.dog.step(after);
        let mut arrived = self.arrived(after);
        let goal = arrived + 20;
        while arrived < goal {
            std::thread::yield_now();
            arrived = self.arrived(after);
        }
        for (name, peer) in [("writer", &self.writer), ("third", &self.third)] {
            match peer.ask(&Ask::Stat) {
                Answer::Stat(Ok(_)) => {}
                other => panic!("after {after}: {name} asked the manager: {other:?}"),
            }
        }
    }

    #[track_caller]
    fn arrived(&self, after: &str) -> u64 {
        for (name, peer) in self.victims_by_name() {
            assert!(
                !peer.has_ended(),
                "after {after}: {name} ended: {:?}",
                peer.wait()
            );
        }
        match self.third.ask(&Ask::Arrived) {
            Answer::Arrived(Ok(n)) => n,
            other => panic!("after {after}: honest frames: {other:?}"),
        }
    }

    /// Descriptors that the manager has open.
    pub fn manager_fds(&self) -> usize {
        match self.manager.ask(&Ask::Fds) {
            Answer::Fds(n) => n,
            other => panic!("{other:?}"),
        }
    }
}
