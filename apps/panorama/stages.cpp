#include "stages.hpp"
#include <algorithm>
#include <cmath>
#include <opencv2/features2d.hpp>
#include <opencv2/imgproc.hpp>
#include <opencv2/stitching/detail/blenders.hpp>
#include <opencv2/stitching/detail/exposure_compensate.hpp>
#include <opencv2/stitching/detail/motion_estimators.hpp>
#include <opencv2/stitching/detail/seam_finders.hpp>
#include <opencv2/stitching/detail/util.hpp>
#include <opencv2/stitching/detail/warpers.hpp>
#include <string>

namespace panorama {

using namespace cv;
using namespace cv::detail;

namespace {

/* A matrix that is to be a part of a stage's result. */
Mat result()
{
    Mat made;
    made.allocator = results;
    return made;
}

/* As OpenCV's sample `stitching_detailed` has them. */
constexpr double FEATURES_MEGAPIXELS = 0.6, SEAMS_MEGAPIXELS = 0.1;
constexpr float MATCH_CONFIDENCE = 0.3F;
constexpr double PAIR_CONFIDENCE = 1;
constexpr float BLEND_PERCENT = 5;

double scale_to(Size size, double megapixels)
{
    return std::min(1.0, std::sqrt(megapixels * 1e6 / size.area()));
}

/* How long a pixel of the panorama is: the middle focal length. */
float radius(const std::vector<CameraParams> &cameras, double scale)
{
    std::vector<double> focals;
    for (const CameraParams &camera : cameras)
        focals.push_back(camera.focal);
    std::sort(focals.begin(), focals.end());
    const size_t middle = focals.size() / 2;
    return static_cast<float>(scale * (focals.size() % 2 == 1 ? focals[middle] : (focals[middle - 1] + focals[middle]) / 2));
}

/* Puts an image on the sphere; `scale` is its size, where the cameras' is 1. */
void put(RotationWarper &warper, const Mat &image, const CameraParams &camera, double scale, Warped &warped)
{
    Mat K, R;
    camera.K().convertTo(K, CV_32F);
    camera.R.convertTo(R, CV_32F);
    const float by = static_cast<float>(scale);
    K.at<float>(0, 0) *= by;
    K.at<float>(0, 2) *= by;
    K.at<float>(1, 1) *= by;
    K.at<float>(1, 2) *= by;

    Mat all(image.size(), CV_8U, Scalar::all(255)), shown = result(), mask = result();
    warped.corners.push_back(warper.warp(image, K, R, INTER_LINEAR, BORDER_REFLECT, shown));
    warper.warp(all, K, R, INTER_NEAREST, BORDER_CONSTANT, mask);
    warped.images.push_back(shown);
    warped.masks.push_back(mask);
}

std::vector<UMat> shared(const std::vector<Mat> &mats)
{
    std::vector<UMat> all;
    for (const Mat &mat : mats)
        all.push_back(mat.getUMat(ACCESS_READ));
    return all;
}

} // namespace

void features(const Photos &photos, Found &found, Small &small, const Tell &tell)
{
    const Ptr<ORB> finder = ORB::create();
    const Size size = photos.images.at(0).size();
    found.scale = scale_to(size, FEATURES_MEGAPIXELS);
    small.scale = scale_to(size, SEAMS_MEGAPIXELS);
    for (size_t i = 0; i < photos.images.size(); i++) {
        Mat work, little = result();
        ImageFeatures each;

        tell(static_cast<int>(i));
        resize(photos.images[i], work, Size(), found.scale, found.scale, INTER_LINEAR_EXACT);
        computeImageFeatures(finder, work, each);
        if (each.keypoints.empty())
            CV_Error(Error::StsBadArg, "image " + std::to_string(i) + " shows nothing that can be found again");
        each.img_idx = static_cast<int>(i);
        found.features.push_back(each);
        resize(photos.images[i], little, Size(), small.scale, small.scale, INTER_LINEAR_EXACT);
        small.images.push_back(little);
    }
}

void match(const Found &found, Matched &matched, const Tell &tell)
{
    BestOf2NearestMatcher matcher(false, MATCH_CONFIDENCE);
    const size_t count = found.features.size();

    matched.pairs.resize(count * count);
    theRNG() = RNG(); /* the index of descriptors is built by chance */
    for (size_t i = 0; i < count; i++) {
        tell(static_cast<int>(i));
        for (size_t j = i + 1; j < count; j++) {
            MatchesInfo &pair = matched.pairs[i * count + j], &turned = matched.pairs[j * count + i];

            matcher(found.features[i], found.features[j], pair);
            pair.src_img_idx = static_cast<int>(i);
            pair.dst_img_idx = static_cast<int>(j);
            turned = pair;
            std::swap(turned.src_img_idx, turned.dst_img_idx);
            if (!pair.H.empty())
                turned.H = pair.H.inv();
            for (DMatch &each : turned.matches)
                std::swap(each.queryIdx, each.trainIdx);
        }
    }
}

void estimate(const Found &found, const Matched &matched, Cameras &cameras, const Tell &tell)
{
    std::vector<ImageFeatures> features = found.features;
    std::vector<MatchesInfo> pairs = matched.pairs;

    tell(-1);
    const std::vector<int> joined = leaveBiggestComponent(features, pairs, static_cast<float>(PAIR_CONFIDENCE));
    for (int i = 0; i < static_cast<int>(found.features.size()); i++)
        if (!std::binary_search(joined.begin(), joined.end(), i)) {
            tell(i);
            CV_Error(Error::StsBadArg, "image " + std::to_string(i) + " overlaps too little with the others");
        }
    if (!HomographyBasedEstimator()(features, pairs, cameras.cameras))
        CV_Error(Error::StsNoConv, "no cameras fit the matches");
    for (CameraParams &camera : cameras.cameras)
        camera.R.convertTo(camera.R, CV_32F);
    BundleAdjusterRay adjust;
    adjust.setConfThresh(PAIR_CONFIDENCE);
    if (!adjust(features, pairs, cameras.cameras))
        CV_Error(Error::StsNoConv, "the cameras' parameters do not converge");
    cameras.scale = found.scale;
}

void wave(const Cameras &rough, Cameras &level, const Tell &tell)
{
    std::vector<Mat> rotations;

    tell(-1);
    for (const CameraParams &camera : rough.cameras)
        rotations.push_back(camera.R.clone());
    waveCorrect(rotations, WAVE_CORRECT_HORIZ);
    level = rough;
    for (size_t i = 0; i < rotations.size(); i++)
        level.cameras[i].R = rotations[i];
}

void warp(const Photos &photos, const Small &small, const Cameras &cameras, Warped &little, Warped &full, Placed &placed,
          const Tell &tell)
{
    const double little_scale = small.scale / cameras.scale, full_scale = 1 / cameras.scale;
    SphericalWarper on_little(radius(cameras.cameras, little_scale)), on_full(radius(cameras.cameras, full_scale));

    for (size_t i = 0; i < photos.images.size(); i++) {
        tell(static_cast<int>(i));
        put(on_little, small.images.at(i), cameras.cameras.at(i), little_scale, little);
        put(on_full, photos.images[i], cameras.cameras[i], full_scale, full);
    }
    placed.corners = full.corners;
    placed.masks = full.masks;
}

void exposure(const Warped &little, const Warped &full, Exposed &exposed, const Tell &tell)
{
    GainCompensator compensator;
    std::vector<Mat> gains;

    tell(-1);
    static_cast<ExposureCompensator &>(compensator).feed(little.corners, shared(little.images), shared(little.masks));
    compensator.getMatGains(gains);
    for (size_t i = 0; i < full.images.size(); i++) {
        Mat out = result();

        tell(static_cast<int>(i));
        multiply(full.images[i], gains.at(i).at<double>(0), out);
        exposed.images.push_back(out);
    }
}

void seams(const Warped &little, Seams &seams, const Tell &tell)
{
    std::vector<UMat> images, masks;

    for (size_t i = 0; i < little.images.size(); i++) {
        UMat image, mask;

        tell(static_cast<int>(i));
        little.images[i].convertTo(image, CV_32F);
        little.masks.at(i).copyTo(mask);
        images.push_back(image);
        masks.push_back(mask);
    }
    tell(-1);
    GraphCutSeamFinder(GraphCutSeamFinderBase::COST_COLOR).find(images, little.corners, masks);
    for (const UMat &mask : masks) {
        Mat out = result();

        mask.copyTo(out);
        seams.masks.push_back(out);
    }
}

void blend(const Exposed &exposed, const Placed &placed, const Seams &seams, Picture &picture, const Tell &tell)
{
    std::vector<Size> sizes;
    for (const Mat &image : exposed.images)
        sizes.push_back(image.size());
    const Rect all = resultRoi(placed.corners, sizes);
    const double width = std::sqrt(static_cast<double>(all.area())) * BLEND_PERCENT / 100;
    MultiBandBlender blender;
    UMat sum, mask; /* into a Mat the blender would copy */

    blender.setNumBands(std::max(1, static_cast<int>(std::ceil(std::log2(width))) - 1));
    blender.prepare(all);
    for (size_t i = 0; i < exposed.images.size(); i++) {
        Mat wide, seam, part;

        tell(static_cast<int>(i));
        dilate(seams.masks.at(i), wide, Mat());
        resize(wide, seam, placed.masks.at(i).size(), 0, 0, INTER_LINEAR_EXACT);
        bitwise_and(seam, placed.masks[i], part);
        blender.feed(exposed.images[i], part, placed.corners.at(i));
    }
    tell(-1);
    blender.blend(sum, mask);
    picture.image = result();
    sum.convertTo(picture.image, CV_8U);
}

} // namespace panorama
