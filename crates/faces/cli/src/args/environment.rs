//! The variables of the environment, for the long help and the manual page. `docs/environment.md` says more of each.

pub(super) const VARIABLES: &str = "\
Environment:
  TRANSHIP_SOCKET        The manager's socket, and no other; of `manager`: where to listen. Else:
                         /run/tranship/manager.sock, then manager.sock in the first of
                         $XDG_RUNTIME_DIR/tranship, /run/user/UID/tranship, /tmp/tranship-UID and
                         $HOME/.tranship that is this user's alone
  TRANSHIP_BIN           The program `tranship` that programs start as a manager
  TRANSHIP_TLS           Directory of the credentials for tcp: addresses; default:
                         ~/.config/tranship/tls, /etc/tranship/tls
  TRANSHIP_PLAIN_TCP     trusted-network: tcp+plain: addresses may leave this machine
  TRANSHIP_LEAKS         1: programs print at their end what they still hold; backtrace: and whence
  TRANSHIP_MALLOC        The allocator that `run` puts under a program
  TRANSHIP_HEAP_MAX      The most that a heap under that allocator may use; `run --quota` sets it
  TRANSHIP_HEAP_IDLE     keep: a silent program under that allocator keeps its free memory, without a thread
  TRANSHIP_ZCOPY_MIN     Of programs with libtranship_zcopy.so: from which size blocks are its own
  TRANSHIP_ZCOPY_SEND    Of these programs: from which size sends go by reference
  TRANSHIP_ZCOPY_MAX     The most that it may use
  TRANSHIP_ZCOPY_BLOCK_PAGES, TRANSHIP_ZCOPY_LARGE
                         Pages of a pageblock; from which size on blocks have pageblocks of their own
  TRANSHIP_ZCOPY_STATS   1: a summary at exit
  TRANSHIP_ZCOPY_EXPLAIN A folder for the counts that `zcopy explain` shows
  RUST_LOG               Levels of the log: debug, tranship_manager=trace,warn
  NO_COLOR               No colours";
