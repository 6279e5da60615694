/* A stage of the pipeline as a component of panorama.toml: "stage NAME". PANORAMA_THREADS: how many threads
 * OpenCV has, 1 by default. It takes its input, calls the stage, and sends the
 * output on, until the photographs end. */
#include "link.hpp"
#include <climits>
#include <cstdlib>
#include <iostream>
#include <malloc.h>

using namespace panorama;

namespace {

struct Stage {
    const char *name;
    /* In the order of the channels in panorama.toml. */
    std::vector<const char *> from, to;
    void (*once)(const Link &, const Tell &);
    /* Memory that its heap keeps for the next panorama. The other stages have what it does not keep. */
    size_t heap_bytes = 0;
};

/* Half of what the stage needs. The program has the most memory while it works. */
constexpr size_t BLEND_BYTES = size_t{128} << 20;

const Stage STAGES[] = {
    {"features",
     {"photos-features"},
     {"features-match", "features-estimate", "features-warp"},
     [](const Link &link, const Tell &tell) {
         Found found;
         Small small;
         {
             Photos photos;
             link.recv("photos-features", photos);
             features(photos, found, small, tell);
         }
         link.send("features-match", found);
         link.send("features-estimate", found);
         link.send("features-warp", small);
     }},
    {"match",
     {"features-match"},
     {"match-estimate"},
     [](const Link &link, const Tell &tell) {
         Found found;
         Matched matched;
         link.recv("features-match", found);
         match(found, matched, tell);
         link.send("match-estimate", matched);
     }},
    {"estimate",
     {"features-estimate", "match-estimate"},
     {"estimate-wave"},
     [](const Link &link, const Tell &tell) {
         Found found;
         Matched matched;
         Cameras cameras;
         link.recv("features-estimate", found);
         link.recv("match-estimate", matched);
         estimate(found, matched, cameras, tell);
         link.send("estimate-wave", cameras);
     }},
    {"wave",
     {"estimate-wave"},
     {"wave-warp"},
     [](const Link &link, const Tell &tell) {
         Cameras rough, level;
         link.recv("estimate-wave", rough);
         wave(rough, level, tell);
         link.send("wave-warp", level);
     }},
    {"warp",
     {"photos-warp", "features-warp", "wave-warp"},
     {"warp-exposure", "warp-seams", "warp-blend"},
     [](const Link &link, const Tell &tell) {
         Warped little, full;
         Placed placed;
         {
             Photos photos;
             Small small;
             Cameras level;
             link.recv("photos-warp", photos);
             link.recv("features-warp", small);
             link.recv("wave-warp", level);
             warp(photos, small, level, little, full, placed, tell);
         }
         link.send("warp-exposure", little, full);
         link.send("warp-seams", little);
         link.send("warp-blend", placed);
     }},
    {"exposure",
     {"warp-exposure"},
     {"exposure-blend"},
     [](const Link &link, const Tell &tell) {
         Exposed exposed;
         {
             Warped little, full;
             link.recv("warp-exposure", little, full);
             exposure(little, full, exposed, tell);
         }
         link.send("exposure-blend", exposed);
     }},
    {"seams",
     {"warp-seams"},
     {"seams-blend"},
     [](const Link &link, const Tell &tell) {
         Warped little;
         Seams cut;
         link.recv("warp-seams", little);
         seams(little, cut, tell);
         link.send("seams-blend", cut);
     }},
    {"blend",
     {"warp-blend", "exposure-blend", "seams-blend"},
     {"blend-photos"},
     [](const Link &link, const Tell &tell) {
         Picture picture;
         {
             Placed placed;
             Exposed exposed;
             Seams cut;
             link.recv("warp-blend", placed);
             link.recv("exposure-blend", exposed);
             link.recv("seams-blend", cut);
             blend(exposed, placed, cut, picture, tell);
         }
         link.send("blend-photos", picture);
     },
     BLEND_BYTES},
};

/* The largest blocks of glibc's heap; larger ones are mappings of their own. */
enum : int { HEAP_MATRIX_BYTES = 32 << 20 };

int run(const Stage &stage, int threads)
{
    const std::string progress = std::string(stage.name) + "-progress";
    Link link(threads);
    /* A heap that gives memory back between two images faults it in again for each image. It gives back at rest only. */
    mallopt(M_MMAP_THRESHOLD, HEAP_MATRIX_BYTES);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    const Tell tell = [&](int image) { link.tell(progress, image); };

    for (const char *name : stage.from)
        link.open_receiver(name);
    for (const char *name : stage.to)
        link.open_sender(name);
    link.open_sender(progress);
    link.ready();
    try {
        for (;;) {
            stage.once(link, tell);
            malloc_trim(stage.heap_bytes);
            tell(AT_REST);
        }
    } catch (const Failed &failed) {
        /* The stage before has ended, in order or not: that stage's end is what is reported. */
        if (failed.status == TRANSHIP_ERR_PEER_GONE || failed.status == TRANSHIP_ERR_PEER_DIED)
            return 0;
        link.abandon();
        throw;
    } catch (...) {
        link.abandon();
        throw;
    }
}

} // namespace

int main(int argc, char **argv)
{
    const char *threads = std::getenv("PANORAMA_THREADS");

    for (const Stage &stage : STAGES)
        if (argc == 2 && stage.name == std::string(argv[1])) {
            try {
                return run(stage, threads == nullptr ? 1 : std::atoi(threads));
            } catch (const std::exception &failed) {
                std::cerr << stage.name << ": " << failed.what() << "\n";
                return 1;
            }
        }
    std::cerr << "usage: stage NAME\n";
    return 2;
}
