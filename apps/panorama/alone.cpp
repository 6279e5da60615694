/* All stages in one process, by calls: "alone PICTURE THREADS TIMES VIEW...". It prints the time of each
 * panorama, and at the end the focal length of each view, and its angle to the first view in degrees. */
#include "stages.hpp"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <opencv2/core/ocl.hpp>
#include <opencv2/imgcodecs.hpp>
#include <string>

using namespace panorama;

static Picture stitch(const Photos &photos, Cameras &level)
{
    const Tell none = [](int) {};
    Picture picture;
    Found found;
    Small small;
    Matched matched;
    Cameras rough;
    Warped little, full;
    Placed placed;
    Exposed exposed;
    Seams cut;

    features(photos, found, small, none);
    match(found, matched, none);
    estimate(found, matched, rough, none);
    wave(rough, level, none);
    warp(photos, small, level, little, full, placed, none);
    exposure(little, full, exposed, none);
    full = Warped();
    seams(little, cut, none);
    blend(exposed, placed, cut, picture, none);
    return picture;
}

int main(int argc, char **argv)
{
    using Clock = std::chrono::steady_clock;
    Photos photos;

    if (argc < 6) {
        std::cerr << "usage: alone PICTURE THREADS TIMES VIEW...\n";
        return 2;
    }
    cv::ocl::setUseOpenCL(false);
    cv::setNumThreads(std::atoi(argv[2]));
    for (int i = 4; i < argc; i++)
        photos.images.push_back(cv::imread(argv[i]));
    try {
        for (int left = std::atoi(argv[3]); left > 0; left--) {
            const Clock::time_point begin = Clock::now();
            Cameras cameras;
            const Picture picture = stitch(photos, cameras);
            std::cout << "time " << std::chrono::duration<double>(Clock::now() - begin).count() << std::endl;
            if (left > 1)
                continue;
            if (!cv::imwrite(argv[1], picture.image))
                return 1;
            for (const cv::detail::CameraParams &camera : cameras.cameras) {
                const cv::Mat ahead = cameras.cameras[0].R.col(2), other = camera.R.col(2);
                std::cout << "camera " << camera.focal / cameras.scale << " " << std::acos(std::min(1.0, ahead.dot(other))) * 180 / CV_PI
                          << "\n";
            }
        }
    } catch (const cv::Exception &failed) {
        std::cerr << "alone: " << failed.what() << "\n";
        return 1;
    }
    return 0;
}
