/* The stages of OpenCV's stitching pipeline, as functions over its own types. They know of no process but their own. */
#ifndef PANORAMA_STAGES_HPP
#define PANORAMA_STAGES_HPP

#include <functional>
#include <opencv2/stitching/detail/camera.hpp>
#include <opencv2/stitching/detail/matchers.hpp>
#include <vector>

namespace panorama {

/* Where the large results of stages are born; NULL: in memory of OpenCV's own, as all that a stage needs meanwhile. */
inline cv::MatAllocator *results = nullptr;

/* Called with the number of an image before a stage begins with it, and with -1 before work on all images at once. */
using Tell = std::function<void(int image)>;

struct Photos {
    std::vector<cv::Mat> images;
};

/* Keypoints and descriptors, found in images of another size. */
struct Found {
    std::vector<cv::detail::ImageFeatures> features;
    double scale = 1;
};

/* The images in the size in which exposure and seams are found. */
struct Small {
    std::vector<cv::Mat> images;
    double scale = 1;
};

/* For n images n * n matches. */
struct Matched {
    std::vector<cv::detail::MatchesInfo> pairs;
};

/* For images of the size in which features were found. */
struct Cameras {
    std::vector<cv::detail::CameraParams> cameras;
    double scale = 1;
};

/* Images on the sphere: where their corners lie, and which pixels an image has. */
struct Warped {
    std::vector<cv::Point> corners;
    std::vector<cv::Mat> images, masks;
};

/* Which pixels of the full panorama come from which image, and where its corner lies. */
struct Placed {
    std::vector<cv::Point> corners;
    std::vector<cv::Mat> masks;
};

struct Exposed {
    std::vector<cv::Mat> images;
};

/* Masks in the small size: each pixel belongs to one image. */
struct Seams {
    std::vector<cv::Mat> masks;
};

struct Picture {
    cv::Mat image;
};

void features(const Photos &photos, Found &found, Small &small, const Tell &tell);
void match(const Found &found, Matched &matched, const Tell &tell);
void estimate(const Found &found, const Matched &matched, Cameras &cameras, const Tell &tell);
void wave(const Cameras &rough, Cameras &level, const Tell &tell);
void warp(const Photos &photos, const Small &small, const Cameras &cameras, Warped &little, Warped &full, Placed &placed,
          const Tell &tell);
void exposure(const Warped &little, const Warped &full, Exposed &exposed, const Tell &tell);
void seams(const Warped &little, Seams &seams, const Tell &tell);
void blend(const Exposed &exposed, const Placed &placed, const Seams &seams, Picture &picture, const Tell &tell);

} // namespace panorama

#endif
