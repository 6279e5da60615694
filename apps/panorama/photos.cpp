/* The first and last component of panorama.toml: "photos FOLDER PICTURE". It sends the images of a folder to the stages, shows how
 * far they are, and writes the panorama. PANORAMA_TIMES: how many times. If a stage ends, it says which one, and at which image. */
#include "link.hpp"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <opencv2/core/utils/filesystem.hpp>
#include <opencv2/imgcodecs.hpp>

using namespace panorama;

namespace {

constexpr size_t STAGES = sizeof STAGE_NAMES / sizeof *STAGE_NAMES;

std::string base(const std::string &path)
{
    return path.substr(path.rfind('/') + 1);
}

/* The stages as they tell of themselves. */
class Progress
{
  public:
    Progress(Link &link, const std::vector<std::string> &files) : files(files)
    {
        for (size_t i = 0; i < STAGES; i++) {
            const std::string name = std::string(STAGE_NAMES[i]) + "-progress";
            link.open_receiver(name);
            items[i].kind = TRANSHIP_POLL_RECEIVER;
            items[i].object = link.receiver(name);
        }
        items[STAGES].kind = TRANSHIP_POLL_RECEIVER;
        items[STAGES].object = link.receiver("blend-photos");
    }

    /* Shows what stages say until the picture is there. False: a stage has ended. */
    bool until_picture()
    {
        for (;;) {
            tranship_error *error = nullptr;
            size_t ready = 0;

            good(tranship_poll(items, STAGES + 1, TRANSHIP_FOREVER, &ready, &error), error);
            for (size_t i = 0; i < STAGES; i++)
                if (items[i].ready != 0 && !listen(i))
                    return false;
            if (items[STAGES].ready != 0)
                return true;
        }
    }

  private:
    /* Takes what a stage has said. False: it has ended before its work was done. */
    bool listen(size_t stage)
    {
        for (;;) {
            tranship_error *error = nullptr;
            tranship_buf said;
            const tranship_status status =
                tranship_recv(static_cast<tranship_receiver *>(items[stage].object), TRANSHIP_NOW, &said, &error);

            if (status == TRANSHIP_OK) {
                tranship_copy_out(&said, 0, &at[stage], sizeof at[stage], nullptr);
                tranship_release(&said);
                if (at[stage] != AT_REST)
                    std::cout << STAGE_NAMES[stage] << ": " << where(at[stage]) << std::endl;
                continue;
            }
            tranship_error_free(error);
            if (status == TRANSHIP_ERR_TIMED_OUT)
                return true;
            if (status == TRANSHIP_ERR_PEER_GONE) {
                items[stage].kind = 0; /* because of the stage before */
                return true;
            }
            std::cerr << "photos: the stage " << STAGE_NAMES[stage] << " has ended, "
                      << (at[stage] == AT_REST ? "between two panoramas" : "at " + where(at[stage])) << std::endl;
            return false;
        }
    }

    std::string where(int image) const
    {
        if (image < 0 || static_cast<size_t>(image) >= files.size())
            return "all images";
        return "image " + std::to_string(image + 1) + " of " + std::to_string(files.size()) + " (" +
               base(files[static_cast<size_t>(image)]) + ")";
    }

    const std::vector<std::string> &files;
    tranship_poll_item items[STAGES + 1] = {};
    int at[STAGES] = {AT_REST, AT_REST, AT_REST, AT_REST, AT_REST, AT_REST, AT_REST, AT_REST};
};

int run(const std::string &folder, const std::string &file)
{
    using Clock = std::chrono::steady_clock;
    const char *times = std::getenv("PANORAMA_TIMES");
    std::vector<cv::String> files;
    Link link(1);
    Photos photos;

    cv::utils::fs::glob(folder, "*.png", files);
    std::sort(files.begin(), files.end());
    cv::Mat::setDefaultAllocator(results);
    for (const std::string &each : files)
        photos.images.push_back(cv::imread(each));
    cv::Mat::setDefaultAllocator(cv::Mat::getStdAllocator());
    if (files.empty()) {
        std::cerr << "photos: " << folder << " has no file *.png\n";
        return 1;
    }
    link.open_sender("photos-features");
    link.open_sender("photos-warp");
    link.open_receiver("blend-photos");
    Progress progress(link, files);
    link.ready();
    for (int left = times == nullptr ? 1 : std::atoi(times); left > 0; left--) {
        const Clock::time_point begin = Clock::now();
        Picture picture;

        link.send("photos-features", photos);
        link.send("photos-warp", photos);
        if (!progress.until_picture())
            return 1;
        link.recv("blend-photos", picture);
        std::cout << "time " << std::chrono::duration<double>(Clock::now() - begin).count() << std::endl;
        if (left == 1 && !cv::imwrite(file, picture.image))
            return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::cerr << "usage: photos FOLDER PICTURE\n";
        return 2;
    }
    try {
        return run(argv[1], argv[2]);
    } catch (const std::exception &failed) {
        std::cerr << "photos: " << failed.what() << "\n";
        return 1;
    }
}
